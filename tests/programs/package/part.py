"""What the module beside it imports relatively."""

PLACE = "package"
