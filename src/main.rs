//! The executable; everything it does is in the library beside it.

/// The C library's allocator is slow with blocks as large as the pages of the database.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    idsvc::cli::main()
}
