//! Gives the library the name by which programs that are linked with it look for it: its number changes with what they
//! rely on.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsmas.so.1");
}
