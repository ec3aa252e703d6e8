package reader

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/internal/reader/readertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestWhatIsNotThereIsElsewhere: the error of an object that is not on record names where an object
// with the same or a similar name is.
func TestWhatIsNotThereIsElsewhere(t *testing.T) {
	w := readertest.NewWorld(t, commands)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1-1"}}
	d, err := w.Write(kinds.Pods.Kind, pod, "kubelet")
	readertest.Must(t, err)
	d.Op = events.Gone
	_, err = w.Say(t.Context(), d)
	readertest.Must(t, err)
	for args, want := range map[string]string{
		"history deploy/web":                                   "not on record: no delta of it is kept; there is one in namespace shop: -n shop",
		"why cm/colours -n shop":                               "there is one in namespace feat: -n feat",
		"get deploy web -n feat":                               "is not on record: no delta of it is kept; there is one in namespace shop: -n shop",
		"get pod/web-1-1 -n shop":                              "is gone since ",
		"why-not pod/web-1-1 -n shop":                          "millrace history pods/web-1-1 -n shop shows its past",
		"history deploy/wbe -n shop":                           "no delta of it is kept; did you mean web?",
		"history deploy/x -n fest":                             "no delta of it is kept; there is no namespace fest on record; did you mean feat?",
		"history deploy/x -n nosuch":                           "no delta of it is kept; there is no namespace nosuch on record",
		"why web -n shop":                                      `"web" names no object: write KIND/NAME; did you mean deploy/web?`,
		"why web-1 -n shop":                                    `"web-1" names no object: write KIND/NAME; did you mean rs/web-1?`,
		"why nothing -n shop":                                  `"nothing" names no object: write KIND/NAME, such as deploy/web`,
		"why-not deploy/web --controller=dp":                   `"dp" is not in the list of known controllers`,
		"why-not deploy/web --controller=deployment-controler": "did you mean deployment-controller?",
		"why-not deploy/web --controller=job":                  "the record has nothing of job-controller: it has not run, or what it did is not kept any more; millrace lag --all lists the 3 that are on record",
		"tail --controller=replicset":                          "did you mean replicaset?",
		"replay --controller=replicset":                        "did you mean replicaset?",
		"explain nonsense/7":                                   `the record has no kind "nonsense"; millrace retention lists all 7; or name a turn as CONTROLLER/TURN, such as deployment-controller/1`,
	} {
		_, err := w.Millrace(strings.Fields(args)...)
		readertest.Says(t, err, strings.Fields(args), want)
	}
}

// TestNothingThere: an empty answer names the namespace, and says if it does not exist.
func TestNothingThere(t *testing.T) {
	w := readertest.NewWorld(t, commands)
	for args, want := range map[string]string{
		"get deploy -n empty":  "no deployments.apps in namespace empty\n",
		"get deploy -n nosuch": "no deployments.apps in namespace nosuch; there is no namespace nosuch on record\n",
	} {
		said, err := w.Millrace(strings.Fields(args)...)
		if err != nil || said != want {
			t.Errorf("millrace %s: %q, %v\nwant %q", args, said, err, want)
		}
	}
}
