//! The executable; everything it does is in the library beside it.

fn main() -> std::process::ExitCode {
    idsvc::cli::main()
}
