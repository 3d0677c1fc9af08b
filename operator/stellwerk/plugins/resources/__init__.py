"""What NodeResourcesFit and its older relatives share: amounts and scoring strategies."""
