//! `decode-bench`: measures one cell. The work is in [`engine::runner`].

use std::process::ExitCode;

use clap::Parser as _;
use engine::alloc::global::HostAllocator;
use engine::runner::{AllocatorRun, Args, init_threads, run, term};

/// Passes everything through until it is installed; see `--host-driver`.
#[global_allocator]
static ALLOCATOR: HostAllocator = HostAllocator::new();

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            term::log(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> anyhow::Result<()> {
    let allocator = AllocatorRun::install(&ALLOCATOR, args.host_driver, args.max_tokens.get())?;
    let threads = init_threads(args.threads);
    let complete = &mut |report: &mut _| allocator.complete(report);
    run(args, &threads, &mut allocator.observer(), complete)
}
