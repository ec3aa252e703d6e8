package past

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/reader/auditlog"
	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record"
)

func version(event record.Event, number string, by record.Hand) record.Version {
	return record.Version{
		Object: events.Ref{Kind: "pods", Namespace: "shop", Name: "web-1"}, UID: "u1", ResourceVersion: number,
		Time: time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC), Event: event, By: by,
	}
}

func drawn(t *testing.T, c *record.Cause) string {
	t.Helper()
	var out bytes.Buffer
	p, err := printer.NewPaper(&out, "never")
	if err != nil {
		t.Fatal(err)
	}
	drawWhy(p, c, false, []string{"pod/web-1"})
	return out.String()
}

// TestWhatIsExplainedAboveNamesNoAuthorAgain: a second author of the same version would be a
// contradiction.
func TestWhatIsExplainedAboveNamesNoAuthorAgain(t *testing.T) {
	again := version(record.Changed, "7", record.Hand{Unknown: "not known"})
	text := drawn(t, &record.Cause{
		Version: version(record.Created, "8", record.Hand{Controller: "replicaset-controller", Turn: 3, Key: "shop/web"}),
		Causes:  []*record.Cause{{Role: record.Asked, Version: again, Note: record.Again}},
	})
	if !strings.Contains(text, "by replicaset-controller, turn 3 of shop/web\n") || strings.Contains(text, "not known") || !strings.Contains(text, record.Again) {
		t.Errorf("it reads\n%s", text)
	}
}

// TestTheReasonOfTheCommandsStandsFirst: reasons that nearly always hold come after it.
func TestTheReasonOfTheCommandsStandsFirst(t *testing.T) {
	var out bytes.Buffer
	p, err := printer.NewPaper(&out, "always")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := reason(p, "too few pods; the status has changed"), p.In(printer.Cyan, "too few pods")+p.In(printer.Dim, "; the status has changed"); got != want {
		t.Errorf("the reason is %q, want %q", got, want)
	}
}

// TestTheAuditLogNamesUsers: a deletion and a binding leave no field manager. The audit log has the
// user, found by the version if the response was logged, and otherwise by the time.
func TestTheAuditLogNamesUsers(t *testing.T) {
	line := func(verb, user, subresource, name, second, answer string) string {
		return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":%q,"requestURI":"/","user":{"username":%q},`+
			`"objectRef":{"resource":"pods","namespace":"shop","name":%q,"subresource":%q},"responseStatus":{"code":200},"stageTimestamp":"2030-01-01T12:00:%sZ","responseObject":%s}`+"\n",
			verb, user, name, subresource, second, answer)
	}
	pod := func(number string) string {
		return `{"kind":"Pod","metadata":{"name":"web-1","uid":"u1","resourceVersion":"` + number + `"}}`
	}
	unknown, ours := record.Hand{Unknown: "a deletion does not say whose it is"}, record.Hand{Controller: "replicaset-controller"}
	for name, c := range map[string]struct {
		log  []string
		of   record.Version
		want string
	}{
		"by the version":                  {[]string{line("delete", "bob", "", "web-1", "00", pod("6")), line("delete", "alice", "", "web-1", "00", pod("7"))}, version(record.Leaving, "7", unknown), "alice"},
		"by the moment":                   {[]string{line("delete", "alice", "", "web-1", "01", "null")}, version(record.Leaving, "7", unknown), "alice"},
		"all of a namespace":              {[]string{line("deletecollection", "alice", "", "", "00", "null")}, version(record.Leaving, "7", unknown), "alice"},
		"an eviction":                     {[]string{line("create", "drain", "eviction", "web-1", "00", "null")}, version(record.Leaving, "7", unknown), "drain"},
		"a binding":                       {[]string{line("create", "scheduler", "binding", "web-1", "00", "null")}, version(record.Changed, "7", record.Hand{Unknown: "bound"}), "scheduler"},
		"another moment":                  {[]string{line("delete", "alice", "", "web-1", "09", "null")}, version(record.Leaving, "7", unknown), ""},
		"another object":                  {[]string{line("delete", "alice", "", "web-2", "00", "null")}, version(record.Leaving, "7", unknown), ""},
		"another sort of write":           {[]string{line("patch", "alice", "", "web-1", "00", "null")}, version(record.Leaving, "7", unknown), ""},
		"another version":                 {[]string{line("patch", "alice", "", "web-1", "00", pod("9"))}, version(record.Changed, "7", unknown), ""},
		"one of two":                      {[]string{line("delete", "alice", "", "web-1", "00", "null"), line("delete", "bob", "", "web-1", "01", "null")}, version(record.Leaving, "7", unknown), ""},
		"what a turn made is as recorded": {[]string{line("delete", "alice", "", "web-1", "00", "null")}, version(record.Leaving, "7", ours), ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "audit.log")
			if err := os.WriteFile(file, []byte(strings.Join(c.log, "")), 0o600); err != nil {
				t.Fatal(err)
			}
			cause := &record.Cause{Version: version(record.Ended, "9", ours), Causes: []*record.Cause{{Version: c.of}}}
			if err := auditlog.NameUsers(cause, file); err != nil {
				t.Fatal(err)
			}
			if got := cause.Causes[0].Version.By.User; got != c.want {
				t.Errorf("by %q, want %q", got, c.want)
			}
			if text := drawn(t, cause); c.want != "" && !strings.Contains(text, "as user "+c.want) {
				t.Errorf("it reads\n%s", text)
			}
		})
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := auditlog.NameUsers(&record.Cause{}, empty); err == nil || !strings.Contains(err.Error(), "--audit-log-path") {
		t.Errorf("an empty log: %v", err)
	}
}
