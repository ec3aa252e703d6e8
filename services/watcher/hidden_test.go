package watcher

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// hides makes a watcher hide what watchertest.Plants puts into pods.
func hides(t *testing.T) func(*Config) {
	hide := watchertest.Hides(t)
	return func(c *Config) { c.Hide = hide }
}

// TestWhatIsHiddenIsNowhere: the hidden value is in no message, no file, no log line and no span,
// however it arrived: with a list, an added, a changed or a deleted object.
func TestWhatIsHiddenIsNowhere(t *testing.T) {
	var lines bytes.Buffer
	state := klog.CaptureState()
	defer state.Restore()
	klog.LogToStderr(false)
	klog.SetOutput(&lines)
	store := t.TempDir()
	b, close := open(t, store)
	s, spans := watchertest.Serve(t), tracetest.New()
	s.Edit("pods", "listed", watchertest.Plants("one"))
	service, stop := start(t, s, b, "one", hides(t), tracedBy(spans))
	watching(t, service)
	s.Edit("pods", "watched", watchertest.Plants("one"))
	s.Edit("pods", "watched", watchertest.Plants("two"))
	s.RemovePod("watched")
	watchertest.Eventually(t, b, "is listed", "is watched", "is watched", "gone watched")
	s.Compact()
	s.CutWatches() // the end of what is missing is said with the body that is stored
	watchertest.Until(t, func() bool { return len(spans.Named("send EV_pods")) >= 3 })
	stop()
	marked := 0
	for _, d := range watchertest.LogOf(t, b) {
		if d.Ref.Name != "" && bytes.Contains(d.Body, []byte("kept")) && bytes.Count(d.Body, []byte(redact.Marker)) == 2 {
			marked++
		}
		if bytes.Contains(d.Body, []byte(watchertest.Canary)) {
			t.Errorf("%s of %v tells it", d.Op, d.Ref)
		}
	}
	if marked < 4 {
		t.Errorf("%d deltas say that something was hidden, want those of all four changes", marked)
	}
	close()
	klog.Flush()
	if told := fmt.Sprintf("%+v", spans.Spans()) + lines.String(); strings.Contains(told, watchertest.Canary) {
		t.Error("a span or a line of the log tells it")
	}
	files := 0
	err := filepath.WalkDir(store, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if files++; bytes.Contains(content, []byte(watchertest.Canary)) {
			t.Errorf("%s holds it", path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files were looked at (%v)", files, err)
	}
}

// TestMarksSayWhetherAKindHasRules, which writers rely on; after a change of the rules they do at
// once.
func TestMarksSayWhetherAKindHasRules(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.Edit("pods", "a", watchertest.Plants("one"))
	says := func() (said events.Redaction) {
		for _, d := range watchertest.LogOf(t, b) {
			if d.Op == events.Mark {
				said = d.Redaction
			}
		}
		return said
	}
	for _, step := range []struct {
		rules []func(*Config)
		want  events.Redaction
	}{{nil, events.Unredacted}, {[]func(*Config){hides(t)}, events.Redacted}, {nil, events.Unredacted}} {
		_, stop := start(t, s, b, "one", step.rules...)
		watchertest.Until(t, func() bool { return says() == step.want })
		stop()
	}
	before := len(watchertest.LogOf(t, b))
	service, stop := start(t, s, b, "again")
	watching(t, service)
	stop()
	if after := len(watchertest.LogOf(t, b)); after != before {
		t.Errorf("%d messages were stored though nothing has changed", after-before)
	}
}
