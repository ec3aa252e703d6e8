package command

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
)

// doctored are the options that flags give.
func doctored(t *testing.T, args ...string) *doctorOptions {
	t.Helper()
	o, f := &doctorOptions{everything: newEverything()}, pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, add := range append(o.flags(), o.cluster.Add, o.add) {
		add(f)
	}
	ok(t, f.Parse(args))
	return o
}

// finding is the one of a check.
func finding(t *testing.T, all []doctor.Finding, check string) doctor.Finding {
	t.Helper()
	i := slices.IndexFunc(all, func(f doctor.Finding) bool { return f.Check == check })
	if i < 0 {
		t.Fatalf("nothing is found of %s: %v", check, all)
	}
	return all[i]
}

// TestContradictions: the doctor finds contradicting flags and files, each with what to do, and
// creates nothing.
func TestContradictions(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	ok(t, os.WriteFile(text, []byte("no key"), 0o600))
	for _, c := range []struct {
		args []string
		says []string // nil: no contradiction
	}{
		{nil, nil},
		{[]string{"--shadow=*", "--nats-listen=127.0.0.1:4222"}, nil},
		{[]string{"--controllers=nonsense"}, []string{"--controllers", "nonsense"}},
		{[]string{"--controllers=replicaset", "--shadow=deployment"}, []string{"--shadow", "name it there too"}},
		{[]string{"--mode=sometimes", "--stream-max-age=1m"}, []string{"--mode", "--stream-max-age"}},
		{[]string{"--root-ca-file=" + text}, []string{"--root-ca-file"}},
		{[]string{"--service-account-private-key-file=" + text}, []string{"--service-account-private-key-file"}},
		{[]string{"--cluster-signing-cert-file=" + text, "--cluster-signing-key-file=" + text}, []string{"--cluster-signing-cert-file"}},
		{[]string{"--tls-cert-file=" + text}, []string{"--tls-private-key-file", "name both"}},
		{[]string{"--tls-cert-file=" + text, "--tls-private-key-file=" + text}, []string{"--tls-cert-file"}},
		{[]string{"--stream-replicas=3"}, []string{"--nats-url"}},
		{[]string{"--nats-listen=0.0.0.0:4222"}, []string{"--nats-tls-cert-file"}},
		{[]string{"--nats-listen=0.0.0.0:4222", "--insecure-bus"}, nil},
		{[]string{"--nats-url=nats://a:4222", "--nats-listen=127.0.0.1:4222"}, []string{"--nats-listen and --nats-url"}},
		{[]string{"--nats-url=nats://a:4222", "--stream-replicas=3"}, nil},
		{[]string{"--leader-elect", "--leader-elect-lease-duration=1s"}, []string{"--leader-elect-lease-duration"}},
		{[]string{"--bind-address=127.0.0.1", "--health-address=127.0.0.1:1"}, []string{"--health-address"}},
		{[]string{"--data-dir="}, []string{"--data-dir"}},
		{[]string{"--cert-dir=" + filepath.Join(dir, "certificates")}, nil},
		{[]string{"--allocate-node-cidrs"}, []string{"--cluster-cidr"}},
	} {
		args := append([]string{"--data-dir=" + filepath.Join(dir, "data")}, c.args...)
		_, f := doctored(t, args...).contradictions(nil)
		if (f.State == doctor.OK) != (len(c.says) == 0) {
			t.Errorf("%v: %s, %v", c.args, f.State, f)
		}
		for _, word := range c.says {
			if !strings.Contains(f.Found, word) {
				t.Errorf("%v: nothing about %q: %v", c.args, word, f)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("something was made: %v, %v", left, err)
	}
	chosen, f := doctored(t, "--controllers=replicaset,deployment,serviceaccount-token", "--shadow=deployment").contradictions(nil)
	if got := chosen.Names(); !slices.Equal(got, []string{"replicaset-controller"}) || !strings.Contains(f.Found, "serviceaccount-token-controller (--service-account-private-key-file)") {
		t.Errorf("%v act: %v", got, f)
	}
}

func TestFlagsOfDoctor(t *testing.T) {
	for args, says := range map[string]string{
		"--of=nonsense": "--of", "-o yaml": "--output", "--of=writer,leader -o json": "",
	} {
		err := doctored(t, strings.Fields(args)...).check()
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestWhatIsNeeded: the checked rights are those of millrace rbac.
func TestWhatIsNeeded(t *testing.T) {
	needed := func(constrains bool, args ...string) map[string]doctor.Needed {
		o := doctored(t, append([]string{"--controllers=replicaset,deployment"}, args...)...)
		chosen, _, err := o.ctrl.Pick()
		ok(t, err)
		all := map[string]doctor.Needed{}
		for _, n := range o.needed(chosen)(constrains) {
			all[n.Part] = n
		}
		return all
	}
	usual := needed(true)
	if len(usual) != 2 || len(usual["watcher"].All) != 6 || len(usual["writer"].All) != 2 || len(usual["writer"].Bounds) == 0 || len(usual["writer"].Instead) != 2 {
		t.Errorf("by default %+v", usual)
	}
	if !slices.Contains(usual["watcher"].All, doctor.Right{Verb: "watch", Group: "apps", Resource: "replicasets"}) {
		t.Errorf("a watcher needs %v", usual["watcher"].All)
	}
	before := needed(false)["writer"]
	if len(before.Bounds) > 0 || before.All[0].Verb != "impersonate" || !strings.Contains(before.Roles, "--impersonation=classic") {
		t.Errorf("before constrained impersonation %+v", before)
	}
	itself := needed(true, "--use-service-account-credentials=false")["writer"]
	if !slices.Contains(itself.All, doctor.Right{Verb: "create", Resource: "pods"}) {
		t.Errorf("a writer that writes as itself needs %v", itself.All)
	}
	for args, idle := range map[string]bool{"--mode=off": true, "--shadow=*": true, "--mode=dry-run": false} {
		if got := needed(true, args)["writer"].Idle; (got != "") != idle {
			t.Errorf("%s: nothing is needed: %q", args, got)
		}
	}
	leader := needed(true, "--leader-elect")["leader"]
	if len(leader.All) != 3 || !slices.Contains(leader.All, doctor.Right{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system", Name: "kube-controller-manager"}) {
		t.Errorf("a leader needs %v", leader.All)
	}
	if other := needed(true, "--leader-elect", "--nats-url=nats://a:4222"); len(other["leader"].All) > 0 {
		t.Error("on a bus that several share a leader is needed")
	}
	if some := needed(true, "--of=metrics"); len(some) != 1 || !some["metrics"].Optional {
		t.Errorf("of metrics %+v", some)
	}
}

// TestWhoComesToTheBus: the address is shown without passwords, and with the user in it.
func TestWhoComesToTheBus(t *testing.T) {
	for args, want := range map[string]doctor.Wanted{
		"--nats-url=nats://me:word@127.0.0.1:4222":                    {Address: "nats://me:xxxxx@127.0.0.1:4222", User: "me", Near: true},
		"--nats-url=nats://localhost:4222,nats://b:4222":              {Address: "nats://localhost:4222,nats://b:4222"},
		"--nats-url=tls://b:4222 --nats-user=you --stream-replicas=3": {Address: "tls://b:4222", User: "you"},
	} {
		o := doctored(t, strings.Fields(args)...)
		w := o.bus.Wanted(streamsOf(controllerflags.Choice{}))
		if w.Address != want.Address || w.User != want.User || w.Near != want.Near || w.Replicas != o.bus.Replicas {
			t.Errorf("%s: %+v", args, w)
		}
	}
}

// TestDoctorAtTheBus: the doctor checks a connected bus; without a connection these checks are not made.
func TestDoctorAtTheBus(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	server, err := embedded.Serve(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Password: "word"})
	ok(t, err)
	t.Cleanup(func() { _ = server.Close() })
	at := strings.TrimPrefix(server.URL(), "nats://")
	look := func(args ...string) []doctor.Finding {
		return doctored(t, args...).lookAtBus(t.Context(), controllerflags.Choice{})
	}
	all := look("--nats-url=nats://millrace:word@" + at)
	for check, want := range map[string]doctor.State{
		doctor.CheckBus: doctor.OK, doctor.CheckBusTLS: doctor.OK, doctor.CheckBusVersion: doctor.OK, doctor.CheckJetStream: doctor.OK, doctor.CheckBusServers: doctor.OK,
		doctor.CheckBusAccount: doctor.OK, doctor.CheckBusStore: doctor.NotChecked, doctor.CheckBusPayload: doctor.OK, doctor.CheckBusAudit: doctor.Warning, doctor.CheckClockBus: doctor.NotChecked,
	} {
		if f := finding(t, all, check); f.State != want {
			t.Errorf("%s is %s, want %s: %v", check, f.State, want, f)
		}
	}
	if f := finding(t, look("--nats-url=nats://millrace:guess@"+at), doctor.CheckBus); f.State != doctor.Failed || !strings.Contains(f.Found, "does not let millrace in") || strings.Contains(f.Found, "guess") {
		t.Errorf("a password that is wrong: %v", f)
	}
	if f := finding(t, look("--nats-url=nats://millrace:word@"+at, "--stream-replicas=3"), doctor.CheckBusServers); f.State != doctor.Failed {
		t.Errorf("too few servers: %v", f)
	}
	if f := finding(t, look("--nats-url=nats://millrace:word@"+at, "--require-audit-grade"), doctor.CheckBusAudit); f.State != doctor.Failed {
		t.Errorf("a bus that has to be audit grade: %v", f)
	}
	ok(t, server.Close())
	began := time.Now()
	if f := finding(t, look("--nats-url=nats://millrace:word@"+at), doctor.CheckBus); f.State != doctor.Failed || !strings.Contains(f.Do, "start NATS") {
		t.Errorf("no bus: %v", f)
	}
	if took := time.Since(began); took > 2*busPatience {
		t.Errorf("it took %v to see that there is no bus", took)
	}
	if f := look()[0]; f.State != doctor.NotChecked {
		t.Errorf("a bus of its own: %v", f)
	}
}

// TestDoctorHere: a missing cluster is a failure, in the table and in JSON.
func TestDoctorHere(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, output := range []string{"table", "json"} {
		o := doctored(t, "--data-dir="+filepath.Join(t.TempDir(), "a", "b"), "-o", output)
		all := o.examine(t.Context())
		if err := doctor.Verdict(all); err == nil || !strings.Contains(err.Error(), "(kubeconfig)") {
			t.Errorf("the verdict is %v: %v", err, all)
		}
		if f := finding(t, all, doctor.CheckDisk); f.State == doctor.NotChecked || strings.Contains(f.Found, "cannot be used") {
			t.Errorf("a directory that is not there yet: %v", f)
		}
		var out bytes.Buffer
		ok(t, o.print(&out, all))
		var read []doctor.Finding
		switch output {
		case "json":
			if err := json.Unmarshal(out.Bytes(), &read); err != nil || !slices.Equal(read, all) {
				t.Errorf("it is written as %s (%v)", out.String(), err)
			}
		default:
			if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 1+len(all) || !strings.HasPrefix(lines[1], "kubeconfig ") || !strings.Contains(lines[1], "failed") {
				t.Errorf("it is written as\n%s", out.String())
			}
		}
	}
	for _, f := range doctored(t, "--of=reconcilers").examine(t.Context()) {
		if slices.Contains(append([]string{doctor.CheckKubeconfig, doctor.CheckAPIServer}, doctor.ServerChecks...), f.Check) {
			t.Errorf("reconcilers need no cluster: %s, %v", f.Check, f)
		}
	}
}

func TestDoctorReadsTheKubeconfig(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		ok(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	const config = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://a:6443'}}]\ncontexts: [{name: prod, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\ncurrent-context: "
	for _, c := range []struct {
		file  string
		state doctor.State
		says  string
	}{
		{write("good", config+"prod\n"), doctor.OK, "context prod, names https://a:6443"},
		{write("lost", config+"test\n"), doctor.Failed, "use-context"},
		{write("empty", ""), doctor.Failed, "use-context"},
		{write("broken", "a: [\n"), doctor.Failed, "correct the file"},
		{filepath.Join(dir, "none"), doctor.Failed, "a file that is there"},
	} {
		seen, _ := doctored(t, "--kubeconfig="+c.file).cluster.Look()
		if f := seen.Finding(); f.State != c.state || !strings.Contains(f.String(), c.says) || !strings.Contains(f.Found, c.file) {
			t.Errorf("%s: %s, %v", c.file, f.State, f)
		}
	}
}

func TestWhereStreamsCanBe(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	ok(t, os.WriteFile(file, nil, 0o600))
	for at, want := range map[string]string{dir: dir, filepath.Join(dir, "a", "b"): dir, file: "", filepath.Join(file, "a"): ""} {
		if got, err := nearest(at); got != want || (err == nil) != (want != "") {
			t.Errorf("streams in %s would be made in %q (%v), want %q", at, got, err, want)
		}
	}
}

// TestChecksAtTheStart: a service logs failures and warnings, except for those that busflags.AuditPart logs,
// and continues regardless.
func TestChecksAtTheStart(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
		p := doctorPart(func(ctx context.Context) []doctor.Finding {
			<-ctx.Done() // a server does not answer
			return []doctor.Finding{
				{Check: "a", State: doctor.Failed, Found: "this is wrong", Do: "do that"}, {Check: "b", State: doctor.Warning, Found: "this may be"},
				{Check: "c", State: doctor.OK, Found: "this is well"}, {Check: "d", State: doctor.NotChecked, Found: "this is unknown"},
				{Check: doctor.CheckBusAudit, State: doctor.Warning, Found: "the audit says it"},
			}
		})
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(startPatience + time.Second) // in the test's own time
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("the part has ended: %v", err)
		default:
		}
		stop()
		ok(t, <-ended)
	})
	text := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	for word, want := range map[string]bool{"this is wrong": true, "do that": true, "this may be": true, "this is well": false, "this is unknown": false, "the audit says it": false} {
		if strings.Contains(text, word) != want {
			t.Errorf("%q is logged: %t\n%s", word, !want, text)
		}
	}
}

// TestAServerWithoutAClient: a configuration that makes no client is a failure, and the other checks
// are not made.
func TestAServerWithoutAClient(t *testing.T) {
	all := lookAtServer(t.Context(), &rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nonexistent"}}, "", controllerflags.Choice{}, nil)
	for i, f := range all {
		if (f.State == doctor.Failed) != (i == 0) {
			t.Errorf("%s: %v", f.State, f)
		}
	}
	if len(all) != 1+len(doctor.ServerChecks) || !strings.Contains(all[0].Found, "/nonexistent") {
		t.Errorf("found is %v", all)
	}
}
