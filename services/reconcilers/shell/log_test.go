package shell

import (
	"bytes"
	"flag"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
)

// A parked key is always logged, and each turn from a verbosity of 3 on.
func TestWhichTurnsAreLogged(t *testing.T) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	set := func(name, value string) {
		t.Helper()
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	var text bytes.Buffer
	set("logtostderr", "false")
	klog.SetOutput(&text)
	t.Cleanup(func() { set("v", "0"); set("logtostderr", "true"); klog.SetOutput(nil) })
	for _, c := range []struct {
		verbosity string
		lane      events.Lane
		want      string
	}{
		{"0", events.LaneWrite, ""}, {"2", events.LaneStatus, ""}, {"3", events.LaneWrite, "Decided"}, {"0", events.LanePark, "Set aside what breaks again and again"},
	} {
		set("v", c.verbosity)
		text.Reset()
		logTurn(events.Turn{Controller: "toy", Key: web, Lane: c.lane, Because: "it breaks"}, 7)
		klog.Flush()
		said := text.String()
		if (said == "") != (c.want == "") || !strings.Contains(said, c.want) {
			t.Errorf("at verbosity %s a turn of lane %s is logged as %q", c.verbosity, c.lane, said)
		}
		for _, part := range []string{`controller="toy"`, `stream="TURN_toy"`, "sequence=7", `because="it breaks"`} {
			if c.want != "" && !strings.Contains(said, part) {
				t.Errorf("the log line lacks %s: %q", part, said)
			}
		}
	}
}
