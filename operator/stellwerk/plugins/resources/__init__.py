"""What the resource plugins share: amounts and scoring strategies."""
