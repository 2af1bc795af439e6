"""The trusted process: owns inputs, expected values, the clock and the verdict. Never imports a candidate."""
