"""Whether set-uid programs or capabilities could help it."""

with open("/proc/self/status") as f:
    fields = dict(line.split(":", 1) for line in f if ":" in line)
if int(fields["NoNewPrivs"]) == 0:
    print("PRIVILEGES can be gained")
for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
    if int(fields[name], 16):
        print("PRIVILEGES", name)
