//! One integration binary, a file per resource.
