package system

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

var (
	flagSection = regexp.MustCompile(`^(\S.*) flags:$`)
	flagLine    = regexp.MustCompile(`^ {2,6}(?:-\w, )?--([a-z0-9-]+).*?(?:\(default ([^()]*)\))?\n$`)
)

// TestFlagsAreUpstreams asks kube-controller-manager for its flags. Millrace has those of
// the controllers that it has, under the same names and with the same defaults, but for how
// much they do at once, and says of every other one what to do instead.
func TestFlagsAreUpstreams(t *testing.T) {
	s := here(t)
	must(t, s.Programs.Build(t.Context(), "kube-controller-manager"))
	help := func(program string, args ...string) string {
		text, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		must(t, err)
		return string(text)
	}
	known := map[string]string{}
	for line := range strings.Lines(help(s.binary, "run", "--help")) {
		if flag := flagLine.FindStringSubmatch(line); flag != nil {
			if known[flag[1]] = flag[2]; flag[2] == "0s" {
				known[flag[1]] = "" // not every help spells out a nought
			}
		}
	}
	var section string
	count, tell := 0, 0
	for line := range strings.Lines(help(s.Programs.Path("kube-controller-manager"), "--help")) {
		if title := flagSection.FindStringSubmatch(strings.TrimSpace(line)); title != nil {
			section = strings.ToLower(title[1])
			continue
		}
		flag := flagLine.FindStringSubmatch(line)
		if flag == nil {
			continue
		}
		entry, ours := controllers.Find(section)
		is, here := known[flag[1]]
		if here {
			count++
			if ours && entry.Exists() && is != flag[2] && !strings.Contains(flag[1], "concurrent-") {
				t.Errorf("--%s is %q by default, and kube-controller-manager's %q", flag[1], is, flag[2])
			}
			continue
		}
		tell++
		if ours && entry.Exists() {
			t.Errorf("kube-controller-manager's flag --%s of %s is not here", flag[1], section)
			continue
		}
		said, err := exec.CommandContext(t.Context(), s.binary, "run", "--"+flag[1]+"=1").CombinedOutput()
		if err == nil || !strings.Contains(string(said), "--"+flag[1]+", which is kube-controller-manager's") {
			t.Errorf("--%s, of its %s flags: %v\n%s", flag[1], section, err, said)
		}
	}
	if count < 100 || tell < 30 {
		t.Errorf("kube-controller-manager has %d flags that are here, and %d that are not: its help was misread", count, tell)
	}
}
