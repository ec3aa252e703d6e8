package binaries

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// selectKubernetes has Kubernetes' programs be of a minor version, such as 1.35, which a module of its
// own pins; empty, or the version of test/cluster: those that test/cluster pins.
func (p *Cache) selectKubernetes(minor string) error {
	if minor == "" {
		return nil
	}
	usual, err := p.Kubernetes()
	if err != nil || strings.HasPrefix(usual, "v"+minor+".") {
		return err
	}
	const prefix = "kubernetes-"
	others, err := filepath.Glob(filepath.Join(p.source, prefix+"*"))
	if err != nil {
		return err
	}
	known := []string{usual}
	for _, dir := range others {
		known = append(known, strings.TrimPrefix(filepath.Base(dir), prefix))
	}
	if !slices.Contains(known, minor) {
		return fmt.Errorf("read MILLRACE_KUBERNETES: there is no version %q; known are %s", minor, strings.Join(known, ", "))
	}
	p.kubernetes = minor
	return nil
}

// OtherKubernetes reports whether $MILLRACE_KUBERNETES has selected another minor version than
// the one that test/cluster pins.
func (p *Cache) OtherKubernetes() bool { return p.kubernetes != "" }

// find returns the program with a name, in the selected version.
func (p *Cache) find(name string) (q program, ok bool) {
	i := slices.IndexFunc(programs, func(q program) bool { return q.name == name })
	if i < 0 {
		return program{}, false
	}
	q = programs[i]
	if p.kubernetes != "" && q.module == kubernetesModule {
		// A program names itself by its file to the API server, so that it has its own name.
		q.under = "kubernetes-" + p.kubernetes
		q.file = filepath.Join(q.under, q.name)
	}
	return q, true
}

// Kubernetes is the version of the API server, such as v1.36.3.
//
// Errors: the file that pins it cannot be read.
func (p *Cache) Kubernetes() (string, error) {
	q, _ := p.find("kube-apiserver")
	return p.version(q)
}

// Minor is x of the version 1.x of the API server.
//
// Errors: those of [Cache.Kubernetes].
func (p *Cache) Minor() (int, error) {
	version, err := p.Kubernetes()
	if err != nil {
		return 0, err
	}
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return 0, fmt.Errorf("read pinned versions: %q is no version", version)
	}
	return strconv.Atoi(parts[1])
}
