//! Finds libcrunrt: in the folder that CRUNRT_LIB_DIR names, else by pkg-config.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=CRUNRT_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rustc-link-lib=dylib=crunrt");
    let folder = env::var("CRUNRT_LIB_DIR").unwrap_or_else(|_| from_pkg_config());
    println!("cargo:rustc-link-search=native={folder}");
    // for the examples and tests of this crate; a program that uses the crate sets its own
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
}

fn from_pkg_config() -> String {
    let found = Command::new("pkg-config").args(["--variable=libdir", "crunrt"]).output();
    match found {
        Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout).trim().to_string(),
        _ => panic!("find libcrunrt: pkg-config does not know it; name its folder in CRUNRT_LIB_DIR"),
    }
}
