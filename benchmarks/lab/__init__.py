"""The policy lab: compares search policies on simulated runs, without a model or a device."""
