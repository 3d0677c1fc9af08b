"""What the GPU plugins share: the room on devices, and what of it is a fragment."""
