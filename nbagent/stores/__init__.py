"""Where session logs live."""
