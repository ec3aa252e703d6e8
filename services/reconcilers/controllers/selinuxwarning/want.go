package selinuxwarning

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// want is what a pod wants of the volume.
type want struct {
	pod *corev1.Pod
	// label is that with which the volume is to be mounted; empty where it is to be mounted
	// without, and relabelled file by file.
	label  string
	policy string
}

// wantOf is what a use wants; ok is false where containers of the pod want several labels. Of a
// volume that the pod has twice, it is what the first of the two wants that wants one label.
//
// Upstream: pkg/volume/util, GetMountSELinuxLabel; pkg/controller/volume/selinuxwarning,
// syncVolume. There the last one counts, in the order of a set.
func (v View) wantOf(u Use) (w want, ok bool) {
	if u.Pod == nil {
		return w, false
	}
	for _, volume := range u.Volumes {
		all := labelsIn(u.Pod, volume)
		if len(all) > 1 {
			continue
		}
		w = want{u.Pod, "", policyOf(u.Pod)}
		if len(all) == 1 && v.Mounts && w.policy != recursive {
			w.label = all[0]
		}
		if w.label == "" {
			w.policy = recursive
		}
		return w, true
	}
	return w, false
}

const recursive = string(corev1.SELinuxChangePolicyRecursive)

func policyOf(p *corev1.Pod) string {
	if c := p.Spec.SecurityContext; c != nil && c.SELinuxChangePolicy != nil {
		return string(*c.SELinuxChangePolicy)
	}
	return string(corev1.SELinuxChangePolicyMountOption)
}

// containers are all containers of a pod, with the volumes that they mount and their options.
func containers(p *corev1.Pod, each func(mounts []corev1.VolumeMount, own *corev1.SecurityContext)) {
	for i := range p.Spec.InitContainers {
		each(p.Spec.InitContainers[i].VolumeMounts, p.Spec.InitContainers[i].SecurityContext)
	}
	for i := range p.Spec.Containers {
		each(p.Spec.Containers[i].VolumeMounts, p.Spec.Containers[i].SecurityContext)
	}
	for i := range p.Spec.EphemeralContainers {
		each(p.Spec.EphemeralContainers[i].VolumeMounts, p.Spec.EphemeralContainers[i].SecurityContext)
	}
}

// mountedBy tells whether a container mounts a volume of its pod. As a device none is labelled.
func mountedBy(p *corev1.Pod, volume string) (mounted bool) {
	containers(p, func(mounts []corev1.VolumeMount, _ *corev1.SecurityContext) {
		mounted = mounted || names(mounts, volume)
	})
	return mounted
}

func names(mounts []corev1.VolumeMount, volume string) bool {
	return slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
}

// labelsIn are the labels with which containers of a pod mount a volume, each once. One that
// says nothing of its options, as its pod does not, has no label, not even an empty one.
func labelsIn(p *corev1.Pod, volume string) (all []string) {
	containers(p, func(mounts []corev1.VolumeMount, own *corev1.SecurityContext) {
		options := optionsOf(p, own)
		if options == nil || !names(mounts, volume) {
			return
		}
		if l := labelOf(options); !slices.Contains(all, l) {
			all = append(all, l)
		}
	})
	return all
}

func optionsOf(p *corev1.Pod, own *corev1.SecurityContext) *corev1.SELinuxOptions {
	switch {
	case own != nil && own.SELinuxOptions != nil:
		return own.SELinuxOptions
	case p.Spec.SecurityContext != nil:
		return p.Spec.SecurityContext.SELinuxOptions
	default:
		return nil
	}
}

// labelOf writes options as a label. What they leave out only the node knows.
//
// Upstream: pkg/controller/volume/selinuxwarning/translator.
func labelOf(o *corev1.SELinuxOptions) string {
	if *o == (corev1.SELinuxOptions{}) {
		return ""
	}
	return strings.Join([]string{o.User, o.Role, o.Type, o.Level}, ":")
}

// labelsConflict tells whether two labels are never one on any node: user, role and type that one
// of them leaves out may be the other's, a level may not.
//
// Upstream: pkg/controller/volume/selinuxwarning/translator, Conflicts.
func labelsConflict(a, b string) bool {
	if a == b {
		return false
	}
	x, y := parts(a), parts(b)
	for i := range 3 {
		if x[i] != y[i] && x[i] != "" && y[i] != "" {
			return true
		}
	}
	return x[3] != y[3]
}

// parts are user, role, type and level of a label; the level may have colons.
func parts(label string) (all [4]string) {
	copy(all[:], strings.SplitN(label, ":", 4))
	return all
}

// digest tells one want of a pod from another.
func (w want) digest() string {
	sum := sha256.Sum256([]byte(w.label + "\x00" + w.policy))
	return hex.EncodeToString(sum[:8])
}
