"""Many runs beside each other: over seeds, over settings, beside the paper."""
