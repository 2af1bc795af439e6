"""Values as Python expressions: constants, stored tensors, and draws of new ones."""
