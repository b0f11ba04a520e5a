//! The `ringway` binary: the allocator and the way into the library.

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(feature = "mimalloc")]
#[allow(unsafe_code)] // The allocator's own call, which its wrapper does not offer.
fn trim() {
    // SAFETY: it touches nothing but free memory of the calling thread.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

fn main() -> std::process::ExitCode {
    #[cfg(feature = "mimalloc")]
    ringway::base::memory::set_trim(trim);
    ringway::cli::main()
}
