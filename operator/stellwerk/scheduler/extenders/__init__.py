"""HTTP extenders of a profile, decisions with their answers, the objects they are sent."""
