package past

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/internal/reader/readertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestDiffOfAKindAndOfANamespace: diff shows created, deleted, replaced and changed objects.
func TestDiffOfAKindAndOfANamespace(t *testing.T) {
	w := readertest.NewWorld(t, Commands)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "feat", Name: name} }
	changed, same := &corev1.ConfigMap{ObjectMeta: meta("changed"), Data: map[string]string{"a": "1"}}, &corev1.ConfigMap{ObjectMeta: meta("same")}
	left, replaced := &corev1.ConfigMap{ObjectMeta: meta("left")}, &corev1.ConfigMap{ObjectMeta: meta("replaced")}
	for _, c := range []*corev1.ConfigMap{changed, same, left, replaced} {
		w.Record(kinds.ConfigMaps.Kind, c)
	}
	from := time.Now().Format(time.RFC3339Nano)
	changed.Data["a"] = "2"
	w.Record(kinds.ConfigMaps.Kind, changed)
	d, err := w.Write(kinds.ConfigMaps.Kind, left, "kubectl")
	readertest.Must(t, err)
	d.Op = events.Gone
	_, err = w.Say(t.Context(), d)
	readertest.Must(t, err)
	replaced.UID = "another"
	w.Record(kinds.ConfigMaps.Kind, replaced)
	w.Record(kinds.ConfigMaps.Kind, &corev1.ConfigMap{ObjectMeta: meta("made")})
	w.PendingPod("made")
	const maps = "changed   configmaps:feat/changed  @A -> @B\n    ~ data.a: 1 -> 2\ndeleted   configmaps:feat/left  @A\ncreated   configmaps:feat/made  @A\nreplaced  configmaps:feat/replaced  @A -> @B\n    ~ metadata.uid: uid-126 -> another\n"
	for args, want := range map[string]string{
		"cm -n=feat":     maps,
		"-n=feat":        maps + "created   pods:feat/made  @A\n",
		"cm,pods -A":     maps + "created   pods:feat/made  @A\n",
		"deploy -n=shop": "nothing differs in the kinds that were compared: 1\n",
	} {
		said, err := w.Millrace(append([]string{"diff", "--from=" + from}, strings.Fields(args)...)...)
		if err != nil || lettered(said) != want {
			t.Errorf("millrace diff %s: %v\n%s\nwant\n%s", args, err, said, want)
		}
	}
	var answer objectsDiffer
	said, err := w.Millrace("diff", "cm", "-n=feat", "--from="+from, "-o=json")
	if readertest.Must(t, err); json.Unmarshal([]byte(said), &answer) != nil || len(answer.Objects) != 4 || answer.Objects[0].Changes[0].Path != "data.a" {
		t.Errorf("as JSON it is\n%s", said)
	}
}

// lettered replaces the versions in an output by letters.
func lettered(said string) (text string) {
	for line := range strings.Lines(said) {
		for i, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "@") {
				letter := "@A"
				if i > 2 {
					letter = "@B"
				}
				line = strings.Replace(line, word, letter, 1)
			}
		}
		text += line
	}
	return text
}
