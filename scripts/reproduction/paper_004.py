"""The check of paper-004."""
import math

from .claims import Check


class Paper004(Check):
    """Which ranges the sizes have that the paper states; the intervals name their samples."""

    # Claim, figure, packets from and to, words of which the cipher's name has one, and the paper's ratio, from and to.
    SIZES = [
        ("AES in software: CCM and GCM take more CPU than CBC and CTR with SHA1", "cpu", 1, 1500, "", 1.2, 1.4),
        ("AES instructions, 180 to 200 bytes: CBC is faster than CTR, CCM and GCM", "throughput", 180, 200, "", 2, 3),
        ("One communication is not faster on several cores; small packets take more CPU there, large ones with CCM or GCM less", "throughput", 180, 400, "", 1 / 1.7, 1 / 1.3),
        ("One communication is not faster on several cores; small packets take more CPU there, large ones with CCM or GCM less", "cpu", 180, 400, "", 1.3, 1.7),
        ("One communication is not faster on several cores; small packets take more CPU there, large ones with CCM or GCM less", "throughput", 401, 1500, "", 0, 1 / 1.1),
        ("One communication is not faster on several cores; small packets take more CPU there, large ones with CCM or GCM less", "cpu", 401, 1500, "aes128ccm aes256ccm aes128gcm aes256gcm", 0.85, 0.85),
        ("AES instructions make every mode faster and cheaper", "throughput", 251, 1500, "aes128ccm aes256ccm", 1.3, 1.3),
        ("AES instructions make every mode faster and cheaper", "throughput", 251, 1500, "aes128- aes256-", 1.1, 1.1),
        ("AES instructions make every mode faster and cheaper", "throughput", 1, 250, "aes128- aes256-", 3.3, 3.3),
        ("AES instructions make every mode faster and cheaper", "throughput", 1, 250, "aes128ccm aes256ccm", 1.5, 1.5),
        ("AES instructions make every mode faster and cheaper", "throughput", 1, 1500, "aes128ctr aes256ctr aes128gcm aes256gcm", 1.5, 1.5),
        ("AES instructions make every mode faster and cheaper", "cpu", 1, 1500, "", 0.5, 0.5),
        ("ESP with NULL encryption takes more CPU than no ESP", "cpu", 1, 1500, "", 1.5, 1.5),
        ("AES-CBC takes more CPU than NULL encryption", "cpu", 1, 1500, "", 3.75, 3.75),
    ]
    MARGIN = 1.1

    def run(self):
        for claim in self.report["claims"]:
            words = claim["claim"]
            figures = claim.get("figures", [])
            sized = [f for f in figures if None not in f["expect"].values()]
            if not any(size[0] == words for size in self.SIZES):
                continue
            expected = [r for f in figures if f not in sized for r in self.ranges(words, f["from"])]
            self.same("ranges", words, len(expected), len(sized))
            for (low, high), figure in zip(expected, sized):
                for name, limit in (("low", low), ("high", high)):
                    self.same("ranges", words, limit, figure["expect"][name], 1e-9)

    def ranges(self, words, source):
        point = self.raw["samples"][source["samples"][0]]["point"]
        for claim, figure, least, most, suites, low, high in self.SIZES:
            of = not suites or any(point["suite"].startswith(suite) for suite in suites.split())
            if claim == words and figure == source["figure"] and least <= point["packet_bytes"] <= most and of:
                yield (low / self.margin(low), high * self.margin(high)) if low else (low, high)

    def margin(self, end):
        """A factor of at most a tenth, and of half of the distance from 1; "at least" has none."""
        return math.exp(min(math.log(self.MARGIN), abs(math.log(end)) / 2))
