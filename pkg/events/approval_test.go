package events

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhichDecisionsCount(t *testing.T) {
	yes, no := ApprovalAnnotations("u1")
	of := func(generation int, limits string) string {
		return fmt.Sprintf(`{"limits":[%s],"generation":%d,"by":"alice"}`, limits, generation)
	}
	for what, c := range map[string]struct {
		annotations  map[string]string
		approved, ok bool
	}{
		"nothing":                        {nil, false, false},
		"an approval":                    {map[string]string{yes: of(3, `"pods","claims"`)}, true, true},
		"a denial":                       {map[string]string{no: of(3, `"pods"`)}, false, true},
		"both":                           {map[string]string{yes: of(3, `"pods"`), no: of(3, `"pods"`)}, false, true},
		"a denial of before":             {map[string]string{yes: of(3, `"pods"`), no: of(2, `"pods"`)}, true, true},
		"another limit":                  {map[string]string{yes: of(3, `"claims"`)}, false, false},
		"another generation":             {map[string]string{yes: of(4, `"pods"`)}, false, false},
		"a copy of another's":            {map[string]string{approvedPrefix + "u2": of(3, `"pods"`)}, false, false},
		"an annotation that is no JSON":  {map[string]string{yes: "yes"}, false, false},
		"a denial that cannot be read":   {map[string]string{yes: of(3, `"pods"`), no: "no"}, true, true},
		"an approval of nothing":         {map[string]string{yes: of(3, "")}, false, false},
		"an approval without generation": {map[string]string{yes: `{"limits":["pods"]}`}, false, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1", Generation: 3, Annotations: c.annotations}}
		a, approved, ok := ApprovalOf(pod, "pods")
		if approved != c.approved || ok != c.ok || ok && a.By != "alice" {
			t.Errorf("%s: %+v, approved %t, decided %t", what, a, approved, ok)
		}
	}
	if _, _, ok := ApprovalOf(nil, "pods"); ok {
		t.Error("no object has a decision")
	}
	if _, _, ok := ApprovalOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{approvedPrefix: `{"limits":["pods"]}`}}}, "pods"); ok {
		t.Error("an object without a uid has a decision")
	}
}

func TestOnlyHeld(t *testing.T) {
	held := Result{Status: Refused, Code: 429, Reason: Held, Cause: "pods"}
	denied := Result{Status: Refused, Code: 429, Reason: Denied, Cause: "pods"}
	for what, c := range map[string]struct {
		results []Result
		want    bool
	}{
		"none":            {nil, false},
		"all applied":     {[]Result{{Status: Applied}}, false},
		"some held":       {[]Result{{Status: Applied}, held, {Status: Skipped}}, true},
		"denied":          {[]Result{denied}, true},
		"another failure": {[]Result{held, {Status: Failed}}, false},
		"a refusal":       {[]Result{held, {Status: Refused, Code: 403, Reason: "Forbidden"}}, false},
		"a busy server":   {[]Result{{Status: Refused, Code: 429, Reason: "TooManyRequests"}}, false},
		"a forged reason": {[]Result{{Status: Refused, Code: 403, Reason: Held}}, false},
	} {
		if got := (Outcome{Results: c.results}).OnlyHeld(); got != c.want {
			t.Errorf("%s: OnlyHeld is %t, want %t", what, got, c.want)
		}
	}
}
