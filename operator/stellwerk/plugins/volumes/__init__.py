"""What the volume plugins share, or VolumeBinding would be too long with.

Claims, pools of volumes and what matches them, provisioning, attached volumes, writes.
"""
