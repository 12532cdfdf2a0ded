"""The commands of `trimtab`, and modules that several commands share."""
