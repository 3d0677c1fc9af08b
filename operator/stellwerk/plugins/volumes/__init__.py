"""What the volume plugins share: claims, pools of volumes, provisioning, writes."""
