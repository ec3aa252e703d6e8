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
	flagLine    = regexp.MustCompile(`^ {2,6}(?:-\w, )?--([a-z0-9-]+)`)
)

// TestFlagsAreUpstreams asks kube-controller-manager for its flags. Millrace has those of
// the controllers that it has, under the same names, and says of every other one what to
// do instead.
func TestFlagsAreUpstreams(t *testing.T) {
	s := here(t)
	must(t, s.Programs.Build(t.Context(), "kube-controller-manager"))
	help := func(program string, args ...string) string {
		text, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		must(t, err)
		return string(text)
	}
	ours := map[string]bool{}
	for line := range strings.Lines(help(s.binary, "run", "--help")) {
		if flag := flagLine.FindStringSubmatch(line); flag != nil {
			ours[flag[1]] = true
		}
	}
	var section string
	count, tell := 0, 0
	for line := range strings.Lines(help(s.Programs.Path("kube-controller-manager"), "--help")) {
		line = strings.TrimRight(line, "\n")
		if title := flagSection.FindStringSubmatch(line); title != nil {
			section = strings.ToLower(title[1])
			continue
		}
		flag := flagLine.FindStringSubmatch(line)
		if flag == nil || ours[flag[1]] {
			count += len(flag) / 2
			continue
		}
		tell++
		if entry, ok := controllers.Find(section); ok && entry.Exists() {
			t.Errorf("kube-controller-manager's flag --%s of %s is not here", flag[1], section)
			continue
		}
		said, err := exec.CommandContext(t.Context(), s.binary, "run", "--"+flag[1]+"=1").CombinedOutput()
		if err == nil || !strings.Contains(string(said), "--"+flag[1]+", which is kube-controller-manager's") {
			t.Errorf("--%s, of its %s flags: %v\n%s", flag[1], section, err, said)
		}
	}
	if count < 40 || tell < 40 {
		t.Errorf("kube-controller-manager has %d flags that are here, and %d that are not: its help was misread", count, tell)
	}
}
