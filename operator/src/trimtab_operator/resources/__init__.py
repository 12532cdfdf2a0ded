"""The five custom resources as pydantic models. The CRDs in ``crds/`` are rendered from these models."""
