//! What is measured on: the processor, its flags, the kernel, the governor, a hypervisor. Owns the reading of `/proc` and
//! `/sys` for that; the files' root is handed in, so that tests can bring their own. Must never change anything.

use std::fs;
use std::path::Path;

use crate::results::format::Machine;

/// Flags that a reader of benchmarks asks for; the others would fill the file.
const FLAGS: &str = "aes pclmulqdq vaes vpclmulqdq avx avx2 avx512f avx512bw avx512vl sha_ni ssse3 sse4_1 bmi2 adx gfni \
                     asimd pmull sha1 sha2 sha512";

/// Describes the machine whose files are under `root` (usually `/`).
#[must_use]
pub(crate) fn describe(root: &Path) -> Machine {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let line = |path: &str| read(path).trim().to_owned();
    let info = read("proc/cpuinfo");
    let field = |names: &[&str]| {
        info.lines().find_map(|l| {
            let (key, value) = l.split_once(':')?;
            names.contains(&key.trim()).then(|| value.trim().to_owned())
        })
    };
    let flags = field(&["flags", "Features"]).unwrap_or_default();
    let policy = "sys/devices/system/cpu/cpu0/cpufreq";
    let governor = line(&format!("{policy}/scaling_governor"));
    let kernel = ["ostype", "osrelease", "version"].map(|n| line(&format!("proc/sys/kernel/{n}"))).join(" ");
    let memory = read("proc/meminfo")
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let named = ["sys/hypervisor/type", "sys/class/dmi/id/sys_vendor"].map(line);
    let known = ["QEMU", "KVM", "VMware", "Xen", "Microsoft", "Amazon", "Google", "innotek", "xen"];
    let virtual_machine = flags.split(' ').any(|f| f == "hypervisor");
    // Some of these sell real machines too; an x86 processor tells which this is.
    let told = flags.split(' ').any(|f| f == "fpu");
    let hypervisor = named
        .iter()
        .find(|n| known.iter().any(|k| n.contains(k)))
        .filter(|_| virtual_machine || !told)
        .cloned();
    Machine {
        cpu: field(&["model name", "Model", "Hardware"]).unwrap_or_else(|| "unknown".to_owned()),
        architecture: std::env::consts::ARCH.to_owned(),
        cores: cores(),
        flags: flags
            .split(' ')
            .filter(|f| FLAGS.split(' ').any(|known| known == *f))
            .map(str::to_owned)
            .collect(),
        kernel: kernel.trim().to_owned(),
        memory: memory.unwrap_or(0) * 1024,
        governor: (!governor.is_empty()).then_some(governor),
        governors: line(&format!("{policy}/scaling_available_governors"))
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        congestion_control: Some(line("proc/sys/net/ipv4/tcp_congestion_control")).filter(|c| !c.is_empty()),
        hypervisor: hypervisor.or_else(|| virtual_machine.then(|| "unknown".to_owned())),
    }
}

/// Processors that this process may use.
#[must_use]
pub(crate) fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1))
}

/// Whether the processor has AES instructions.
#[must_use]
pub(crate) fn has_aes(machine: &Machine) -> bool {
    machine.flags.iter().any(|f| f == "aes")
}

/// Load averages over 1, 5 and 15 minutes.
#[must_use]
pub(crate) fn load() -> Option<[f64; 3]> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let mut numbers = text.split(' ').map_while(|n| n.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_from_its_files() {
        let root = std::env::temp_dir().join(format!("dormouse-machine-{}", std::process::id()));
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Atom N270\nflags\t\t: fpu ssse3 aes hypervisor\n");
        put("proc/sys/kernel/ostype", "Linux\n");
        put("proc/sys/kernel/osrelease", "6.1.0\n");
        put("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n");
        put("proc/meminfo", "MemTotal:        1024 kB\n");
        put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "ondemand\n");
        put(
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors",
            "ondemand powersave performance\n",
        );
        let machine = describe(&root);
        put("sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n");
        assert_eq!(describe(&root).hypervisor.as_deref(), Some("Microsoft Corporation"));
        put("proc/cpuinfo", "model name\t: a tablet's\nflags\t\t: fpu ssse3 aes\n");
        assert_eq!(describe(&root).hypervisor, None, "its maker makes a hypervisor too");
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(machine.cpu, "Atom N270");
        assert_eq!(machine.flags, ["ssse3", "aes"]);
        assert!(has_aes(&machine));
        assert_eq!(machine.kernel, "Linux 6.1.0");
        assert_eq!(machine.congestion_control.as_deref(), Some("cubic"));
        assert_eq!(machine.memory, 1 << 20);
        assert_eq!(machine.governor.as_deref(), Some("ondemand"));
        assert_eq!(machine.governors, ["ondemand", "powersave", "performance"]);
        assert_eq!(machine.hypervisor.as_deref(), Some("unknown"));
        let nothing = describe(Path::new("/nonexistent"));
        assert_eq!((nothing.cpu.as_str(), nothing.governor, nothing.hypervisor), ("unknown", None, None));
    }
}
