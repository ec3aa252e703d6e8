package reader

import (
	"strings"
	"testing"
)

// TestWhatIsNotThereIsElsewhere: the error of an object that is not on record has where
// it is, or what has a similar name.
func TestWhatIsNotThereIsElsewhere(t *testing.T) {
	w := newWorld(t)
	for args, want := range map[string]string{
		"history deploy/web":                                   "not on record: no delta of it is kept; there is one in namespace shop: -n shop",
		"why cm/colours -n shop":                               "there is one in namespace feat: -n feat",
		"get deploy web -n feat":                               "not on record at now; there is one in namespace shop: -n shop",
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
		_, err := w.run(strings.Fields(args)...)
		says(t, err, strings.Fields(args), want)
	}
}

// TestNothingThere: an empty answer has the namespace, and whether there is such a one.
func TestNothingThere(t *testing.T) {
	w := newWorld(t)
	for args, want := range map[string]string{
		"get deploy -n empty":  "no deployments.apps in namespace empty\n",
		"get deploy -n nosuch": "no deployments.apps in namespace nosuch; there is no namespace nosuch on record\n",
	} {
		said, err := w.run(strings.Fields(args)...)
		if err != nil || said != want {
			t.Errorf("millrace %s: %q, %v\nwant %q", args, said, err, want)
		}
	}
}
