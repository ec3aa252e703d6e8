package busflags

import (
	"strings"
	"testing"

	"k8s.io/klog/v2/ktesting"

	"github.com/millrace/millrace/pkg/events/stream/audit"
)

// TestRequireAuditGrade: with the flag, a bus that could lose messages is refused, with all
// shortcomings and their cures.
func TestRequireAuditGrade(t *testing.T) {
	server := Server{DataDir: t.TempDir(), sync: 1}
	running, err := server.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = running.Close() })
	o := New()
	b, err := o.Open(t.Context(), "test", running)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := o.Audit(t.Context(), b); err != nil {
		t.Errorf("refused without being asked to: %v", err)
	}
	o.auditGrade = true
	err = o.Audit(t.Context(), b)
	if err == nil {
		t.Fatal("a single server that syncs now and then is not refused")
	}
	for _, want := range []string{"not audit grade", "--stream-replicas=3", "sync_interval: always", "--require-audit-grade"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

// TestTellSaysThingsOnce: a shortcoming is logged when it appears and when it is gone.
func TestTellSaysThingsOnce(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	one, other := audit.Shortcoming{Reason: "one", What: "this", Cure: "that"}, audit.Shortcoming{Reason: "other"}
	said := map[string]bool{}
	for _, found := range [][]audit.Shortcoming{{one}, {one}, {one, other}, {other}, nil, nil} {
		said = tell(logger, said, found)
	}
	text := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	for line, n := range map[string]int{"requirements of an audit: this": 1, "does not meet the requirements": 2, "again": 2, `reason="one"`: 2} {
		if got := strings.Count(text, line); got != n {
			t.Errorf("%q was said %d times, want %d:\n%s", line, got, n, text)
		}
	}
}
