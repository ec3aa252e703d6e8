package pending

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/reader/readertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/report"
)

// TestWhyNotAsksRunningProcesses: why-not shows the key's state in reconcilers and writer, with what
// to do. The error for a process that does not answer names it and says what to do.
func TestWhyNotAsksRunningProcesses(t *testing.T) {
	w := readertest.NewWorld(t, Commands)
	quota(w)
	since := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	reports := map[string]report.KeyReport{
		"deciding": {Reconcilers: &report.KeyState{Known: true, Waits: report.NoOutcome, Reason: report.NoOutcome.Reason(), Checks: []report.KeyCheck{
			{Condition: report.NoOutcome, Reason: report.NoOutcome.Reason(), Holds: true, Since: &since, About: "no writer says that it is there"},
			{Condition: report.NotSeen, Reason: report.NotSeen.Reason()},
		}}},
		"writing":  {Writer: []report.TurnState{{Lane: events.LaneWrite.String(), Turn: 7, Attempt: 2, Stored: since, Claim: "Held"}}},
		"resting":  {},
		"ignorant": {Reconcilers: &report.KeyState{Reason: "nothing asks for a turn"}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		report, some := reports[strings.Split(r.URL.Path, "/")[1]]
		switch {
		case !strings.HasSuffix(r.URL.Path, "/debug/keys/replicaset-controller/feat/api-1"):
			http.Error(w, "this process does not run the controller", http.StatusNotFound)
		case strings.HasPrefix(r.URL.Path, "/guarded") && r.Header.Get("Authorization") != "Bearer word":
			http.Error(w, "who are you?", http.StatusUnauthorized)
		case some || strings.HasPrefix(r.URL.Path, "/guarded"):
			_ = json.NewEncoder(w).Encode(report)
		default:
			_, _ = w.Write([]byte("<html>"))
		}
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string][]string{
		"--live=" + server.URL + "/deciding":                           {report.NoOutcome.Reason(), "NoOutcome", "no writer says that it is there", "since ", report.NoOutcome.Advice()},
		"--live=" + server.URL + "/writing":                            {"write turn 7", "delivered 2 times", "Held"},
		"--live=" + server.URL + "/resting":                            {"the writer has no turn of the key"},
		"--live=" + server.URL + "/ignorant":                           {"nothing asks for a turn", "has not had to do with the key"},
		"--live=" + server.URL + "/guarded --live-token-file=" + token: {"the writer has no turn of the key"},
	} {
		said, err := w.Millrace(append([]string{"why-not", "rs/api-1", "-n=feat"}, strings.Fields(args)...)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
		}
		for _, part := range want {
			if !strings.Contains(said, part) {
				t.Errorf("%s lacks %q:\n%s", args, part, said)
			}
		}
		if strings.Contains(said, "NotSeen") {
			t.Errorf("%s says what does not hold:\n%s", args, said)
		}
	}
	for args, want := range map[string]string{
		"--live=" + server.URL + "/guarded":                          "--live-token-file",
		"--live=" + server.URL + "/a-page":                           "read its answer",
		"--live=127.0.0.1:10260":                                     "http://HOST:PORT",
		"--live=http://127.0.0.1:1":                                  "does the service run",
		"--live=" + server.URL + "/deciding --live-token-file=/none": "read --live-token-file",
	} {
		if said, err := w.Millrace(append([]string{"why-not", "rs/api-1", "-n=feat"}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q in it\n%s", args, err, want, said)
		}
	}
}
