package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/pkg/events/stream/audit"
)

var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// expectation is an expected finding: its state, and words of its text.
type expectation struct {
	name  string
	is    Finding
	state State
	says  string // words with "…" between
}

// expect compares findings, and requires each failed one to say what to do.
func expect(t *testing.T, all []expectation) {
	t.Helper()
	for _, c := range all {
		f := c.is
		if f.State != c.state {
			t.Errorf("%s: %s is %s, want %s: %v", c.name, f.Check, f.State, c.state, f)
		}
		for word := range strings.SplitSeq(c.says, "…") {
			if !strings.Contains(f.String(), word) {
				t.Errorf("%s: %s says nothing of %q: %v", c.name, f.Check, word, f)
			}
		}
		if f.Check == "" || f.Found == "" {
			t.Errorf("%s: %+v says nothing", c.name, f)
		}
		if f.State == OK && f.Do != "" {
			t.Errorf("%s: %s is well, and there is something to do: %s", c.name, f.Check, f.Do)
		}
	}
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	const file = "/home/x/.kube/config"
	expect(t, []expectation{
		{"a file", Kubeconfig{From: file, Context: "prod", Host: "https://a:6443"}.Finding(), OK, file + "…prod…https://a:6443"},
		{"a pod", Kubeconfig{From: "the pod's service account", Host: "https://10.0.0.1"}.Finding(), OK, "service account"},
		{"none", Kubeconfig{Err: errors.New("no cluster: set --kubeconfig")}.Finding(), Failed, "set --kubeconfig"},
		{"none, but kubectl's", Kubeconfig{Err: errors.New("no cluster"), Usual: file}.Finding(), Failed, "--kubeconfig=" + file},
		{"no such file", Kubeconfig{From: file, Err: fmt.Errorf("stat: %w", fs.ErrNotExist)}.Finding(), Failed, "a file that is there"},
		{"a file of others", Kubeconfig{From: file, Err: fmt.Errorf("open: %w", fs.ErrPermission)}.Finding(), Failed, "read it"},
		{"no context", Kubeconfig{From: file, Err: clientcmd.ErrEmptyConfig}.Finding(), Failed, "use-context"},
		{"a broken file", Kubeconfig{From: file, Err: errors.New("yaml: line 3")}.Finding(), Failed, "line 3…correct the file"},
	})
}

func TestServerAndCertificate(t *testing.T) {
	t.Parallel()
	until := func(left time.Duration) []*x509.Certificate { return []*x509.Certificate{{NotAfter: now.Add(left)}} }
	year := until(365 * 24 * time.Hour)
	for _, c := range []struct {
		name         string
		seen         Reach
		server, cert State
		says         string
		well         bool
	}{
		{"well", Reach{Code: 200, Took: 12 * time.Millisecond, Chain: year}, OK, OK, "12ms…2027-11-27", true},
		{"forbidden", Reach{Code: 403, Chain: year}, OK, OK, "", true},
		{"unknown", Reach{Code: 401, Chain: year}, OK, OK, "", false},
		{"broken", Reach{Code: 503, Chain: year}, Failed, OK, "503…readyz", false},
		{"down", Reach{Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, Failed, NotChecked, "refused…runs", false},
		{"no such name", Reach{Err: &net.DNSError{Name: "a", Err: "no such host", IsNotFound: true}}, Failed, NotChecked, "DNS", false},
		{"another authority", Reach{Err: x509.UnknownAuthorityError{}}, NotChecked, Failed, "certificate-authority", false},
		{"expired", Reach{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, NotChecked, Failed, "clocks", false},
		{"other names", Reach{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "b"}}, NotChecked, Failed, "tls-server-name", false},
		{"no TLS there", Reach{Err: tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}}, NotChecked, Failed, "port", false},
		{"asked without", Reach{Code: 200, Plain: true}, OK, Warning, "https://", true},
		{"not looked at", Reach{Code: 200, Unverified: true, Chain: year}, OK, Warning, "insecure-skip-tls-verify", true},
		{"ends soon", Reach{Code: 200, Chain: until(24 * time.Hour)}, OK, Warning, "2026-11-28…renew", true},
	} {
		c.seen.Host = "https://a:6443"
		all := c.seen.Findings(now)
		if len(all) != 2 || all[0].State != c.server || all[1].State != c.cert {
			t.Errorf("%s: %v, want %s and %s", c.name, all, c.server, c.cert)
		}
		for word := range strings.SplitSeq(c.says, "…") {
			if !strings.Contains(fmt.Sprint(all), word) {
				t.Errorf("%s: nothing about %q in %v", c.name, word, all)
			}
		}
		if c.seen.Well() != c.well {
			t.Errorf("%s: there is use in asking further: %t", c.name, !c.well)
		}
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	expect(t, []expectation{
		{"known", Identity{Code: 200, Name: "millrace"}.Finding(now), OK, "millrace"},
		{"a token that ended", Identity{Code: 401}.Finding(now), Failed, "token"},
		{"a certificate that ended", Identity{Code: 401, Ends: now.Add(-time.Hour)}.Finding(now), Failed, "2026-11-27 11:00…renew"},
		{"a certificate that ends", Identity{Code: 200, Name: "x", Ends: now.Add(time.Hour)}.Finding(now), Warning, "13:00…renew"},
		{"a certificate that lasts", Identity{Code: 200, Name: "x", Ends: now.Add(8 * 24 * time.Hour)}.Finding(now), OK, ""},
		{"a user without any role", Identity{Code: 403, Name: "x"}.Finding(now), Failed, "millrace rbac"},
		{"no user", Identity{Code: 403, Err: errors.New(`User "system:anonymous" cannot create`)}.Finding(now), Failed, "anonymous…credentials"},
		{"an API server of before", Identity{Code: 200, Err: errors.New("not found")}.Finding(now), NotChecked, "not found"},
	})
}

func TestVersion(t *testing.T) {
	t.Parallel()
	of := func(minor string) ServerVersion {
		return ServerVersion{Major: "1", Minor: minor, GitVersion: "v1." + minor + ".3"}
	}
	expect(t, []expectation{
		{"tested", of("36").Finding(), OK, "v1.36.3"},
		{"a cloud's", of("36+").Finding(), OK, ""},
		{"one before", of("35").Finding(), Warning, "--shadow…classic"},
		{"the oldest", of("34").Finding(), Warning, ""},
		{"older", of("33").Finding(), Failed, "1.34"},
		{"newer", of("37").Finding(), Warning, "newer"},
		{"another Kubernetes", ServerVersion{Major: "2", Minor: "0", GitVersion: "v2.0.0"}.Finding(), NotChecked, ""},
		{"built by hand", ServerVersion{GitVersion: "v0.0.0-master+$Format:%H$"}.Finding(), NotChecked, "v0.0.0"},
		{"without numbers", ServerVersion{GitVersion: "v1.36.0-rc.1"}.Finding(), OK, ""},
	})
	for minor, want := range map[string]bool{"35": false, "36": true, "36+": true, "": true} {
		if got := of(minor).Constrains(); got != want {
			t.Errorf("1.%s constrains impersonation: %t", minor, got)
		}
	}
}

func TestRightsOfRules(t *testing.T) {
	t.Parallel()
	rules := []rbacv1.PolicyRule{
		{Verbs: []string{"list", "watch"}, APIGroups: []string{"apps"}, Resources: []string{"deployments", "deployments/status"}},
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"a", "b"}},
		{Verbs: []string{"get"}, NonResourceURLs: []string{"/apis"}},
	}
	all := Rights(rules, "")
	if len(all) != 7 || !slices.Contains(all, Right{Verb: "watch", Group: "apps", Resource: "deployments/status"}) ||
		!slices.Contains(all, Right{Verb: "get", Resource: "secrets", Name: "b"}) || !slices.Contains(all, Right{Verb: "get", Path: "/apis"}) {
		t.Errorf("the rules give %v", all)
	}
	for _, r := range all {
		if !given(rules, r) {
			t.Errorf("the rules do not give %v", r)
		}
	}
	for _, r := range []Right{{Verb: "get", Resource: "secrets"}, {Verb: "get", Resource: "secrets", Name: "c"}, {Verb: "list", Resource: "deployments"}, {Verb: "get", Path: "/api"}} {
		if given(rules, r) {
			t.Errorf("the rules give %v", r)
		}
	}
	if got := (Right{Verb: "get", Group: "apps", Resource: "deployments", Namespace: "n", Name: "x"}).String(); got != "get deployments.apps x in n" {
		t.Errorf("a right reads %q", got)
	}
}

func TestNeeded(t *testing.T) {
	t.Parallel()
	bounds := []rbacv1.PolicyRule{{Verbs: []string{"impersonate-on:serviceaccount:create"}, APIGroups: []string{""}, Resources: []string{"pods"}}}
	writer := WriterNeeds([]string{"a", "b"}, bounds, true)
	writer.Roles = "millrace rbac --of=writer"
	classic := WriterNeeds([]string{"a", "b"}, bounds, false)
	have := func(all ...[]Right) map[Right]bool {
		may := map[Right]bool{}
		for _, r := range slices.Concat(all...) {
			may[r] = true
		}
		return may
	}
	expect(t, []expectation{
		{"all", writer.Finding(have(writer.All, writer.Bounds)), OK, "all 3 rights of the writer"},
		{"one identity less", writer.Finding(have(writer.All[:1], writer.Bounds)), Failed, "1 of 3…serviceaccounts.authentication.k8s.io b in kube-system…millrace rbac --of=writer"},
		{"no bounds", writer.Finding(have(writer.All)), Failed, "1 of 3…create pods"},
		{"in the classic way", writer.Finding(have(writer.Instead)), OK, "classic way"},
		{"half in the classic way", writer.Finding(have(writer.Instead[:1], writer.All[1:])), Failed, "2 of 3"},
		{"before 1.36", classic.Finding(have(classic.All)), OK, "all 2 rights"},
		{"before 1.36, by none", classic.Finding(nil), Failed, "impersonate serviceaccounts a in kube-system"},
		{"none is needed", Needed{Part: PartWriter, Idle: "with --mode=off nothing is written"}.Finding(nil), NotChecked, "--mode=off"},
		{"one that is not needed", Needed{Part: PartMetrics, Optional: true, All: []Right{{Verb: "create", Resource: "x"}}}.Finding(nil), Warning, "create x"},
	})
}

func TestClocks(t *testing.T) {
	t.Parallel()
	told := func(late time.Duration) audit.ClockReading {
		return audit.ClockReading{At: now.Add(late), Asked: now, Answered: now.Add(40 * time.Millisecond)}
	}
	expect(t, []expectation{
		{"agrees", ServerClock(told(0)), OK, "40ms"},
		{"a little ahead", ServerClock(told(2 * time.Second)), OK, ""},
		{"ahead", ServerClock(told(time.Minute)), Warning, "59.96s ahead of…NTP"},
		{"behind", BusClock(told(-time.Hour)), Warning, "the bus is 1h0m0s behind"},
		{"not told", ServerClock(audit.ClockReading{}), NotChecked, "Date"},
		{"not told by the bus", BusClock(audit.ClockReading{}), NotChecked, "streams"},
	})
}

func TestDisk(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	expect(t, []expectation{
		{"roomy", Disk{Dir: "/d", Free: 40 * gib, Known: true}.Finding(), OK, "40 GiB free"},
		{"in use", Disk{Dir: "/d", Free: 3 * gib, Has: 3 * gib / 2, Known: true}.Finding(), OK, "streams of 1.5 GiB"},
		{"small", Disk{Dir: "/d", Free: 2 * gib, Known: true}.Finding(), Warning, "2 GiB…retention"},
		{"full", Disk{Dir: "/d", Free: 100 << 20, Known: true}.Finding(), Failed, "100 MiB…--data-dir"},
		{"a bound that is too high", Disk{Dir: "/d", Free: 40 * gib, Bound: 50 * gib, Known: true}.Finding(), Warning, "--nats-max-store=50 GiB"},
		{"not known", Disk{Dir: "/d"}.Finding(), NotChecked, "/d"},
		{"not ours", Disk{Dir: "/d", Err: fs.ErrPermission}.Finding(), Failed, "permission denied…--data-dir"},
	})
}

func TestSettings(t *testing.T) {
	t.Parallel()
	expect(t, []expectation{
		{"well", Settings{Acting: 3, Looking: 1, Off: []string{"x (--y)"}}.Finding(), OK, "3 controllers act, and 1…x (--y)"},
		{"wrong", Settings{Wrong: []string{"a: take b", "c"}}.Finding(), Failed, "a: take b. Also, c"},
	})
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	good, bad := Finding{Check: "a", State: OK}, Finding{Check: "b", State: Failed}
	for _, c := range []struct {
		all  []Finding
		want string
	}{
		{nil, ""},
		{[]Finding{good, {State: Warning}, {State: NotChecked}}, ""},
		{[]Finding{good, bad}, "1 of 2 checks failed (b): see what to do beside each"},
		{[]Finding{bad, good, {Check: "c", State: Failed}}, "2 of 3 checks failed (b, c): see what to do beside each"},
	} {
		err := Verdict(c.all)
		if (err == nil) != (c.want == "") || err != nil && (err.Error() != c.want || !errors.Is(err, ErrFailed)) {
			t.Errorf("%v: %v, want %q", c.all, err, c.want)
		}
	}
}
