package events

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// A command is special by the combination of its verb, kind and subresource. If one of the three
// differs, it is a plain request.
func TestWhichCommandsAreSpecial(t *testing.T) {
	for name, c := range map[string]struct {
		command Command
		is      func(Command) bool
	}{
		"signs":        {Command{Verb: VerbPatch, Kind: kinds.ConfigMaps.Name, Subresource: SubSignatures}, Command.Signs},
		"certifies":    {Command{Verb: VerbPatch, Kind: kinds.CertificateSigningRequests.Name, Subresource: SubCertificate}, Command.Certifies},
		"fills tokens": {Command{Verb: VerbPatch, Kind: kinds.Secrets.Name, Subresource: SubToken}, Command.FillsToken},
		"asks expiry":  {Command{Verb: VerbAsk, Kind: kinds.Secrets.Name, Subresource: SubExpiry}, Command.AsksExpiry},
	} {
		if !c.is(c.command) {
			t.Errorf("%+v does not: %s", c.command, name)
		}
		for what, change := range map[string]func(*Command){
			"verb": func(c *Command) { c.Verb = VerbUpdate }, "kind": func(c *Command) { c.Kind = kinds.Pods.Name }, "subresource": func(c *Command) { c.Subresource = "status" },
			"no subresource": func(c *Command) { c.Subresource = "" },
		} {
			other := c.command
			if change(&other); c.is(other) {
				t.Errorf("%s, with another %s: %+v", name, what, other)
			}
		}
	}
	about := Command{Verb: VerbAsk, Kind: kinds.Secrets.Name, Subresource: SubExpiry, Of: &metav1.OwnerReference{}}
	if about.AsksExpiry() {
		t.Error("an ask about an owner asks when a token expires")
	}
	for what, names := range map[string][]string{
		"subresources": {SubSignatures, SubCertificate, SubToken, SubExpiry, SubReview, SubApproval, SubTypes, SubReadings, SubRanges, SubUsers, SubObjects, SubContents},
		"reasons":      {NotToBeSigned, NoKey, NoToken, OtherAccount, NoMatch, NoSubresource, BadSignature},
	} {
		if slices.Sort(names); len(slices.Compact(names)) != map[string]int{"subresources": 12, "reasons": 7}[what] || names[0] == "" {
			t.Errorf("of the %s two are the same, or one is empty: %v", what, names)
		}
	}
}

// Only a refusal because of the kind or the subresource means that something is not served.
func TestWhatIsLacking(t *testing.T) {
	for reason, lacks := range map[string]bool{NoMatch: true, NoSubresource: true, "Forbidden": false, "": false} {
		if got := (Result{Status: Refused, Reason: reason}).Lacks(); got != lacks {
			t.Errorf("refused for %q: it is lacking: %t", reason, got)
		}
		if (Result{Status: Failed, Reason: reason}).Lacks() {
			t.Errorf("failed for %q: it is lacking", reason)
		}
	}
}

// A key has other reasons to wait than a controller, and each has a description.
func TestWhyAKeyWaits(t *testing.T) {
	words := map[string]bool{}
	for _, c := range []Condition{NoLease, OtherReplica, Parked, BackingOff} {
		if !c.OfKey() || c.Reason() == string(c) || c.Advice() != "" {
			t.Errorf("%s is of keys: %t; %q", c, c.OfKey(), c.Reason())
		}
		words[c.Reason()] = true
	}
	for _, c := range append(Conditions(), "Later", "") {
		if c.OfKey() {
			t.Errorf("%s is of keys", c)
		}
	}
	if len(words) != 4 {
		t.Errorf("the reasons are %v", slices.Collect(maps.Keys(words)))
	}
}

// A shadow's finding is unexplained only if one side did something that the other never did.
func TestWhichAgreementsAreExplained(t *testing.T) {
	open := slices.DeleteFunc(slices.Clone(Agreements), Agreement.Explained)
	if !slices.Equal(open, []Agreement{WeOnly, KCMOnly, Differs}) || len(Agreements) != 8 {
		t.Errorf("of %v those that are open are %v", Agreements, open)
	}
}

// The users of an object are looked for in the kinds that can need it.
func TestWhichKindsNeedAnObject(t *testing.T) {
	for kind, want := range map[kinds.Name][]kinds.Name{
		kinds.PersistentVolumeClaims.Name: {kinds.Pods.Name}, kinds.PodGroups.Name: {kinds.Pods.Name},
		kinds.ServiceCIDRs.Name: {kinds.IPAddresses.Name, kinds.ServiceCIDRs.Name}, kinds.Pods.Name: nil,
	} {
		if got := UserKinds(kind); !slices.Equal(got, want) {
			t.Errorf("%s is needed by %v, want %v", kind, got, want)
		}
	}
}

// A pod is in the PodGroup that it names until it has ended.
func TestWhichPodsAreInAGroup(t *testing.T) {
	group, other := "g", "h"
	for phase, in := range map[corev1.PodPhase]bool{
		corev1.PodPending: true, corev1.PodRunning: true, corev1.PodUnknown: true, "": true, corev1.PodSucceeded: false, corev1.PodFailed: false,
	} {
		for _, of := range []*string{&group, &other, nil} {
			p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: of}
			if got := InPodGroup(p, "g"); got != (in && of == &group) {
				t.Errorf("a pod that is %q and names %v is in the group: %t", phase, of, got)
			}
		}
	}
	if InPodGroup(&corev1.Pod{}, "g") || InPodGroup(&corev1.Pod{}, "") {
		t.Error("a pod that names no group is in one")
	}
}

// A Secret in kube-system signs depending on its name, its type and its data, until it expires.
// Each of these alone prevents it.
func TestWhichTokensSign(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	token := func(change func(*corev1.Secret)) *corev1.Secret {
		s := &corev1.Secret{Type: BootstrapToken, Data: map[string][]byte{
			"token-id": []byte("abc123"), "token-secret": []byte("sesame"), "usage-bootstrap-signing": []byte("true"), "expiration": []byte(noon.Format(time.RFC3339)),
		}}
		s.Namespace, s.Name = "kube-system", "bootstrap-token-abc123"
		change(s)
		return s
	}
	says := func(field, value string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data[field] = []byte(value) }
	}
	early := noon.Add(-time.Second)
	for name, c := range map[string]struct {
		change     func(*corev1.Secret)
		name, sign bool // may it by its name, and does it
	}{
		"as it should be":        {func(*corev1.Secret) {}, true, true},
		"without an end":         {says("expiration", ""), true, true},
		"another namespace":      {func(s *corev1.Secret) { s.Namespace = "default" }, false, false},
		"another name":           {func(s *corev1.Secret) { s.Name = "token-abc123" }, false, false},
		"a longer name":          {func(s *corev1.Secret) { s.Name += "4" }, false, false},
		"a shorter name":         {func(s *corev1.Secret) { s.Name = "bootstrap-token-abc12" }, false, false},
		"a name before its name": {func(s *corev1.Secret) { s.Name = "x" + s.Name }, false, false},
		"capital letters":        {func(s *corev1.Secret) { s.Name = "bootstrap-token-ABC123" }, false, false},
		"another id":             {says("token-id", "abc124"), true, false},
		"no secret":              {says("token-secret", ""), true, false},
		"not for signing":        {says("usage-bootstrap-signing", "false"), true, false},
		"signing without a word": {func(s *corev1.Secret) { delete(s.Data, "usage-bootstrap-signing") }, true, false},
		"another type":           {func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, true, false},
		"an end that is none":    {says("expiration", "never"), true, false},
		"an end that has passed": {says("expiration", early.Format(time.RFC3339)), true, false},
	} {
		s := token(c.change)
		if id, may := MaySign(s); may != c.name || may && id != "abc123" || !may && id != "" {
			t.Errorf("%s: it may sign by its name: %t, as %q", name, may, id)
		}
		id, key, may := SignerOf(s, early)
		if may != c.sign || may && (id != "abc123" || key != "sesame") || !may && id+key != "" {
			t.Errorf("%s: it signs: %t, as %q with %q", name, may, id, key)
		}
		if _, _, may := SignerOf(s, noon); may && name != "without an end" {
			t.Errorf("%s: it signs when it has expired", name)
		}
	}
	other := &unstructured.Unstructured{}
	other.SetNamespace("kube-system")
	other.SetName("bootstrap-token-zz9zz9")
	if id, may := MaySign(other); !may || id != "zz9zz9" {
		t.Errorf("an object that is known by its metadata may sign: %t, as %q", may, id)
	}
}

// The wait doubles with each failure after the first, up to the longest.
func TestHowLongAKeyBacksOff(t *testing.T) {
	for n, want := range map[int]time.Duration{
		0: 5 * time.Millisecond, 1: 5 * time.Millisecond, 2: 10 * time.Millisecond, 3: 20 * time.Millisecond, 17: 327680 * time.Millisecond,
		18: 655360 * time.Millisecond, 19: 1000 * time.Second, 20: 1000 * time.Second, 1 << 40: 1000 * time.Second,
	} {
		if got := Backoff(n, FirstBackoff, LongestBackoff); got != want {
			t.Errorf("after %d failures it waits %v, want %v", n, got, want)
		}
	}
	if got := Backoff(3, time.Second, 4*time.Second); got != 4*time.Second {
		t.Errorf("it waits %v", got)
	}
	if got := Backoff(1, time.Minute, time.Second); got != time.Second {
		t.Errorf("with a longest wait that is shorter than the first it waits %v", got)
	}
}

// Over names the first kind, by name, whose epoch has ended, or none.
func TestWhichEpochsAreOver(t *testing.T) {
	for name, c := range map[string]struct {
		was, now Epochs
		kind     kinds.Name
	}{
		"none": {nil, nil, ""}, "the same": {Epochs{"pods": 2}, Epochs{"pods": 2}, ""}, "an earlier one": {Epochs{"pods": 2}, Epochs{"pods": 1}, ""},
		"a later one": {Epochs{"pods": 2}, Epochs{"pods": 3}, "pods"}, "of one that had none": {nil, Epochs{"pods": 1}, "pods"},
		"several": {Epochs{"c": 1}, Epochs{"c": 2, "b": 1, "d": 1, "a": 0}, "b"},
	} {
		if kind, over := c.was.Over(c.now); kind != c.kind || over != (c.kind != "") {
			t.Errorf("%s: %q is over: %t, want %q", name, kind, over, c.kind)
		}
	}
	if got := (Epochs{"a": 2, "b": 7, "c": 3}).Newest(); got != 7 {
		t.Errorf("the newest is %d", got)
	}
	if got := (Epochs{}).Newest(); got != 0 {
		t.Errorf("of none the newest is %d", got)
	}
}

// Each part of a request changes the digest, and so does the order; notices do not.
func TestWhatMakesTheSameRequests(t *testing.T) {
	of := func(change func(*Command)) Command {
		c := Command{Verb: VerbUpdate, Kind: "pods", Namespace: "ns", Name: "a", Subresource: "status", If: &If{UID: "u", ResourceVersion: "7"}, Body: []byte(`{}`)}
		change(&c)
		return c
	}
	plain := of(func(*Command) {})
	seen := map[uint64]string{Digest([]Command{plain}): "the command", Digest(nil): "nothing"}
	for what, change := range map[string]func(*Command){
		"verb": func(c *Command) { c.Verb = VerbPatch }, "kind": func(c *Command) { c.Kind = "nodes" }, "namespace": func(c *Command) { c.Namespace = "" },
		"name": func(c *Command) { c.Name = "b" }, "subresource": func(c *Command) { c.Subresource = "" }, "uid": func(c *Command) { c.If = &If{UID: "v", ResourceVersion: "7"} },
		"version": func(c *Command) { c.If = &If{UID: "u", ResourceVersion: "8"} }, "condition": func(c *Command) { c.If = nil }, "body": func(c *Command) { c.Body = []byte(`[]`) },
		"a name in the namespace": func(c *Command) { c.Namespace, c.Name = "nsa", "" },
	} {
		digest := Digest([]Command{of(change)})
		if other, twice := seen[digest]; twice {
			t.Errorf("another %s is the same request as %s", what, other)
		}
		seen[digest] = what
	}
	if other := of(func(c *Command) { c.Name = "b" }); Digest([]Command{plain, other}) == Digest([]Command{other, plain}) {
		t.Error("in another order the requests are the same")
	}
	if told := of(func(c *Command) { c.OnFailed = &Notice{Message: strings.Repeat("x", 9)} }); Digest([]Command{told}) != Digest([]Command{plain}) {
		t.Error("what is told makes another request")
	}
}
