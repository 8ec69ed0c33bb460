//! `decode-bench`: measures one cell. The work is in [`engine::runner`].

use std::process::ExitCode;

use clap::Parser as _;
use engine::alloc::global::HostAllocator;
use engine::runner::{AllocatorRun, Args, run, term};

/// Passes everything through until it is installed, which is for the processor alone; see
/// `--host-driver`.
#[global_allocator]
static ALLOCATOR: HostAllocator = HostAllocator::new();

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!("{error:#}");
            term::log(&format!("error: {text}"));
            #[cfg(feature = "cuda")]
            if text.contains("OUT_OF_MEMORY")
                && let Some(failure) = engine::cuda::last_failure()
            {
                term::log(&format!("the last refused allocation: {failure}"));
            }
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> anyhow::Result<()> {
    let (allocator, threads, device) = AllocatorRun::install(&ALLOCATOR, args)?;
    let observer = allocator.observer();
    let complete = &mut |report: &mut _| observer.complete(report);
    run(args, &threads, &device, &mut &observer, complete)
}
