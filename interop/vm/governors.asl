// Three frequencies for the first processor, so that acpi-cpufreq has something to govern in an emulated machine. It writes the number of a
// state to a port: without a device there governors change and speeds do not; `boot -s` has one, and slows the processor down.
DefinitionBlock ("", "SSDT", 2, "DORMSE", "PSTATES", 1)
{
    External (\_SB.CPUS.C000, DeviceObj)
    Scope (\_SB.CPUS.C000)
    {
        Name (_PCT, Package ()
        {
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x5F0) },
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x5F1) }
        })
        Name (_PSS, Package ()
        {
            Package () { 2400, 30000, 10, 10, 0, 0 },
            Package () { 1800, 20000, 10, 10, 1, 1 },
            Package () { 1200, 10000, 10, 10, 2, 2 }
        })
        Name (_PPC, 0)
    }
}
