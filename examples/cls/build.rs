//! A stack of 64 KiB instead of 1 MiB: each call begins with memory of its own.

fn main() {
    println!("cargo:rustc-link-arg=-zstack-size=65536");
}
