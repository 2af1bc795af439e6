"""The policy lab: landscapes of attempts on which search policies are compared without a model or a device."""
