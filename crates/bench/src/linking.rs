//! A linker's job, as section 4.2 of the paper has it (`gnuld`): several hundred object files of different sizes, which the
//! linker reads in parts and out of order, and one output file, which it writes.
//!
//! The linker is the paper's, GNU `ld`, and the object files are real ones, made by the system's assembler of text that is ours. They
//! are linked in another order than that in which they lie on the drive. All of a file's symbols and references have
//! to be read before anything can be placed, and its contents after that: so each file is read at its begin, at its end, and then in
//! between, and the linker computes where it does not read or write. What comes out is compared with what the same job makes of
//! the same files on a local disk.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::BenchError;
use crate::program::run_program;

/// Object files, and what their sizes are in: one of the least has so many functions, one of the largest so many more.
const MODULES: usize = 300;
const LEAST_FUNCTIONS: usize = 4;
const MORE_FUNCTIONS: usize = 48;
/// References of a function to others, of 8 bytes each, and words of 8 bytes that stand for its code.
const REFERENCES: usize = 16;
const CODE_WORDS: usize = 112;
/// Has no factor in common with the number of modules: this far apart, in the order of the drive, are those that are linked one after the
/// other.
const STRIDE: usize = 131;

const ASSEMBLER: &str = "as";
const LINKER: &str = "ld";
/// What the linker makes.
const OUTPUT: &str = "kernel";

/// Object files in a directory that is gone when this is dropped, and what is linked of them.
#[derive(Debug)]
pub(crate) struct Modules {
    root: PathBuf,
    linked: Vec<u8>,
}

impl Modules {
    /// Makes the object files in a new directory, which should be on a disk of this machine, and links them once.
    ///
    /// # Errors
    ///
    /// No assembler or linker, or a directory that can't be made.
    pub(crate) fn assemble(root: &Path) -> Result<Modules, BenchError> {
        let failed = BenchError::io("can't make object files");
        fs::create_dir(root).map_err(&failed)?;
        let mut modules = Modules { root: root.to_owned(), linked: Vec::new() };
        let source = root.join("module.s");
        for module in 0..MODULES {
            fs::write(&source, text_of(module)).map_err(&failed)?;
            let mut assembler = Command::new(ASSEMBLER);
            assembler.arg("-o").arg(root.join(name_of(module))).arg(&source);
            run_program(ASSEMBLER, assembler)?;
        }
        fs::remove_file(&source).map_err(&failed)?;
        link(root)?;
        modules.linked = fs::read(root.join(OUTPUT)).map_err(failed)?;
        Ok(modules)
    }

    /// Copies the object files into a new directory, one after the other.
    pub(crate) fn copy_to(&self, directory: &Path) -> Result<(), BenchError> {
        let failed = BenchError::io("can't copy object files");
        fs::create_dir(directory).map_err(&failed)?;
        for name in (0..MODULES).map(name_of) {
            fs::copy(self.root.join(&name), directory.join(&name)).map_err(&failed)?;
        }
        Ok(())
    }

    /// Whether the output in a directory is right. It is removed.
    pub(crate) fn check_output(&self, directory: &Path) -> Result<(), BenchError> {
        let failed = BenchError::io("can't read what was linked");
        let output = directory.join(OUTPUT);
        let linked = fs::read(&output).map_err(&failed)?;
        let differs = linked.iter().zip(&self.linked).position(|(one, other)| one != other);
        let shorter = linked.len().min(self.linked.len());
        let differs = differs.or((linked.len() != self.linked.len()).then_some(shorter));
        match differs {
            Some(offset) => Err(BenchError::WrongData { offset: offset as u64 }),
            None => fs::remove_file(&output).map_err(failed),
        }
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Links the object files of a directory there.
pub(crate) fn link(directory: &Path) -> Result<(), BenchError> {
    let mut linker = Command::new(LINKER);
    linker.args(["--build-id=none", "--entry=f0_0", "-o", OUTPUT]).current_dir(directory);
    linker.args((0..MODULES).map(|turn| name_of(turn * STRIDE % MODULES)));
    run_program(LINKER, linker)
}

fn name_of(module: usize) -> String {
    format!("module{module:03}.o")
}

/// How many functions a module has: sizes are spread evenly, and not in their order.
fn functions_of(module: usize) -> usize {
    LEAST_FUNCTIONS + module * 37 % (MORE_FUNCTIONS + 1)
}

/// A module in the assembler's language, of directives that all processors have: functions that refer to those of other modules.
fn text_of(module: usize) -> String {
    let mut text = ".text\n".to_owned();
    for function in 0..functions_of(module) {
        let _ = writeln!(text, ".balign 16\n.globl f{module}_{function}\nf{module}_{function}:");
        for reference in 0..REFERENCES {
            let other = (module + 1 + function * 7 + reference * 29) % MODULES;
            let target = (function + reference) % functions_of(other);
            let _ = writeln!(text, ".quad f{other}_{target}");
        }
        let code = (module << 32 | function) as u64;
        let _ = writeln!(
            text,
            ".fill {CODE_WORDS}, 8, {:#x}",
            code.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn modules_are_linked_alike_wherever_they_are() {
        let scratch = Scratch::new("linking");
        let modules = Modules::assemble(&scratch.path().join("made")).unwrap();
        assert!(
            (7_000_000..10_000_000).contains(&modules.linked.len()),
            "{}",
            modules.linked.len()
        );
        let copy = scratch.path().join("copy");
        modules.copy_to(&copy).unwrap();
        let there = || fs::read_dir(&copy).unwrap().count();
        assert_eq!(there(), MODULES);
        link(&copy).unwrap();
        modules.check_output(&copy).unwrap();
        assert_eq!(there(), MODULES, "the output is removed");
        // One reference leads elsewhere.
        let other = text_of(7).replacen(".quad f8_0\n", ".quad f9_0\n", 1);
        assert_ne!(other, text_of(7));
        fs::write(copy.join("module.s"), other).unwrap();
        let mut assembler = Command::new(ASSEMBLER);
        assembler.args(["-o", &name_of(7), "module.s"]).current_dir(&copy);
        run_program(ASSEMBLER, assembler).unwrap();
        link(&copy).unwrap();
        let checked = modules.check_output(&copy);
        assert!(matches!(checked, Err(BenchError::WrongData { .. })), "{checked:?}");
    }

    #[test]
    fn each_module_has_its_turn() {
        let mut turns: Vec<usize> = (0..MODULES).map(|turn| turn * STRIDE % MODULES).collect();
        assert!(
            turns.is_sorted_by(|one, other| other.abs_diff(*one) > 1),
            "none beside the one before"
        );
        turns.sort_unstable();
        turns.dedup();
        assert_eq!(turns.len(), MODULES);
    }
}
