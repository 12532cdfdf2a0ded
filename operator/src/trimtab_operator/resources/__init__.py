"""The five custom resources as pydantic models: the one source of the CRDs in ``crds/``."""
