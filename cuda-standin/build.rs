//! Gives the library the name under which the driver is looked up, and puts the links that the
//! linker and the loader ask for beside it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}
