package observability

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every log line about a turn has the turn and its trace.
func TestEveryLineOfATurnLeadsToIt(t *testing.T) {
	s := here(t)
	for service, message := range map[string]string{"millrace-reconcilers": "Decided", "millrace-writer": "carried out a turn"} {
		seen := 0
		for _, line := range s.lines(t, service) {
			if line["msg"] != message {
				continue
			}
			seen++
			for field, form := range map[string]string{
				"traceID": "^[0-9a-f]{32}$", "controller": "-controller$", "key": ".", "lane": "^(write|status)$", "stream": "^TURN_", "because": ".",
			} {
				if text, _ := line[field].(string); !regexp.MustCompile(form).MatchString(text) || text == strings.Repeat("0", 32) {
					t.Errorf("%s: %s is %q in %v", service, field, text, line)
				}
			}
			if at, _ := line["sequence"].(float64); at < 1 {
				t.Errorf("%s: the sequence of %q is %v", service, message, line["sequence"])
			}
		}
		if seen < 10 {
			t.Errorf("%s has %d lines %q", service, seen, message)
		}
	}
}

// lines are the log lines of a service, which must be JSON with a time and a message.
func (s *site) lines(t *testing.T, service string) (all []map[string]any) {
	t.Helper()
	for _, p := range s.cluster.Processes() {
		if p.Name != service {
			continue
		}
		text, err := os.ReadFile(p.Log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasSuffix(line, "\n") {
				break // the service is writing it
			}
			fields := map[string]any{}
			if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["ts"] == nil || fields["msg"] == nil {
				t.Errorf("%s: not a line of JSON with ts and msg: %s", service, line)
				continue
			}
			all = append(all, fields)
		}
	}
	return all
}
