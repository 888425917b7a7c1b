//! Gives the library the name that programs which are linked with it look for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnasd_bulk.so");
}
