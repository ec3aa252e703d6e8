package watcher

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
)

const canary = "canary-91c2e7-never-told"

// hides makes a watcher hide the environment of pods, and an annotation on them.
func hides(t *testing.T) func(*Config) {
	t.Helper()
	var rules redact.Rules
	for _, text := range []string{"pods:.spec.containers[*].env[*].value", "pods:.metadata.annotations['example.com/token']"} {
		r, err := redact.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	return func(c *Config) { c.Hide = redact.Policy{Rules: rules} }
}

// plants is a change that puts the canary wherever it is to be hidden, and into a copy.
func plants(image string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{
			"example.com/token": canary, "example.com/kept": "kept",
			corev1.LastAppliedConfigAnnotation: `{"env":"` + canary + `"}`,
		}
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: image, Env: []corev1.EnvVar{{Name: "TOKEN", Value: canary}}}}
	}
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
	s, spans := serve(t), tracetest.New()
	s.changeOf("pods", "ADDED", "listed", plants("one"))
	service, stop := start(t, s, b, "one", hides(t), tracedBy(spans))
	watching(t, service)
	s.changeOf("pods", "ADDED", "watched", plants("one"))
	s.changeOf("pods", "MODIFIED", "watched", plants("two"))
	s.changeOf("pods", "DELETED", "watched", plants("two"))
	eventually(t, b, "is listed", "is watched", "is watched", "gone watched")
	s.forget()
	s.cut() // the end of what is missing is said with the body that is stored
	until(t, func() bool { return len(spans.Named("send EV_pods")) >= 3 })
	stop()
	marked := 0
	for _, d := range logOf(t, b) {
		if d.Ref.Name != "" && bytes.Contains(d.Body, []byte("kept")) && bytes.Count(d.Body, []byte(redact.Marker)) == 2 {
			marked++
		}
		if bytes.Contains(d.Body, []byte(canary)) {
			t.Errorf("%s of %v tells it", d.Op, d.Ref)
		}
	}
	if marked < 4 {
		t.Errorf("%d deltas say that something was hidden, want those of all four changes", marked)
	}
	close()
	klog.Flush()
	if told := fmt.Sprintf("%+v", spans.Spans()) + lines.String(); strings.Contains(told, canary) {
		t.Error("a span or a line of the log tells it")
	}
	files := 0
	err := filepath.WalkDir(store, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if files++; bytes.Contains(content, []byte(canary)) {
			t.Errorf("%s holds it", path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files were looked at (%v)", files, err)
	}
}

// TestARuleReachesWhatIsSaidAgain: the watcher does not record a value again that was stored before
// there was a rule, neither in a keyframe nor in the end of a missing object.
func TestARuleReachesWhatIsSaidAgain(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	s.changeOf("pods", "ADDED", "a", plants("one"))
	s.changeOf("pods", "ADDED", "b", plants("one"))
	_, stop := start(t, s, b, "before")
	until(t, func() bool { return len(logOf(t, b)) == 3 }) // and a mark
	stop()
	before := len(logOf(t, b))
	if !bytes.Contains(logOf(t, b)[0].Body, []byte(canary)) {
		t.Fatal("without a rule nothing is hidden")
	}
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	config := Config{}
	hides(t)(&config)
	k := &kindWatch{
		kind: kinds.Pods.Kind, bus: b, metrics: newMetrics(), appender: appender, redact: config.Hide,
		age: time.Nanosecond, marked: time.Now().Add(time.Hour),
	}
	counts(t, k)
	if err := k.recordDeleted(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := k.keyframes(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := logOf(t, b)[before:]
	first, second := logOf(t, b)[0].Ref.Name, logOf(t, b)[1].Ref.Name
	if got := fmt.Sprint(ops(again)); got != "[gone "+second+" is "+first+" mark]" {
		t.Fatalf("it was said %s", got)
	}
	for _, d := range again {
		if bytes.Contains(d.Body, []byte(canary)) {
			t.Errorf("%s of %v tells what is hidden by now", d.Op, d.Ref)
		}
		if d.Op != events.Mark && (d.Form != kinds.Full || !bytes.Contains(d.Body, []byte("kept"))) {
			t.Errorf("%s of %v has lost more than that", d.Op, d.Ref)
		}
	}
}

// TestMarksSayWhetherAKindHasRules, which writers rely on; after a change of the rules they do at
// once.
func TestMarksSayWhetherAKindHasRules(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	s.changeOf("pods", "ADDED", "a", plants("one"))
	says := func() (said events.Redaction) {
		for _, d := range logOf(t, b) {
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
		until(t, func() bool { return says() == step.want })
		stop()
	}
	before := len(logOf(t, b))
	service, stop := start(t, s, b, "again")
	watching(t, service)
	stop()
	if after := len(logOf(t, b)); after != before {
		t.Errorf("nothing has changed, and %d messages were stored", after-before)
	}
}
