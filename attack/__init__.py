"""Bad inputs, damaged files, interrupts, kills and full disks: ``make attack`` prints what comes of them."""
