package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// exec answers /exec/<namespace>/<pod>/[<uid>/]<container>?command=...
func (f *fakelet) exec(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) < 4 {
		http.NotFound(w, r)
		return
	}
	opts, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, f, parts[1]+"/"+parts[2], "", parts[len(parts)-1], r.URL.Query()["command"], opts,
		4*time.Hour, 30*time.Second, remotecommandProtocols)
}

// remotecommandProtocols are the stream protocols that kubectl and the API server speak.
var remotecommandProtocols = []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"}

// ExecInContainer answers the commands that the tests know; any other command
// succeeds and says nothing.
func (f *fakelet) ExecInContainer(_ context.Context, name, _, _ string, cmd []string, _ io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	ns, pod, _ := strings.Cut(name, "/")
	line := strings.Join(cmd, " ")
	say := func(s string) {
		if out != nil {
			_, _ = io.WriteString(out, s)
		}
	}
	switch {
	case strings.Contains(line, "mv -v /tmp/"):
		say("renamed\n")
		f.ready(ns, pod, true)
	case strings.Contains(line, "mv -v /"):
		say("renamed\n")
		f.ready(ns, pod, false)
	case probeFile.MatchString(line):
		if p, err := f.c.CoreV1().Pods(ns).Get(context.Background(), pod, metav1.GetOptions{}); err == nil {
			f.mu.Lock()
			f.touch(disk(p), probeFile.FindStringSubmatch(line)[1])
			f.mu.Unlock()
		}
		f.ready(ns, pod, true)
	case netTarget.MatchString(line):
		name, ok := f.connect(ns, netTarget.FindStringSubmatch(line))
		if strings.Contains(line, `test "$?" -ne "0"`) || strings.Contains(line, "&& echo service-down-failed") {
			ok = !ok
			name = ""
		}
		if !ok {
			return utilexec.CodeExitError{Err: fmt.Errorf("connection refused"), Code: 1}
		}
		say(name)
	case strings.Contains(line, "printf $(hostname)"):
		say(pod)
	case strings.Contains(line, "hostname"):
		say(pod + "\n")
	}
	return nil
}
