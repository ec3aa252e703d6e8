// Package settle compares the ends of two controllers that run undisturbed in a world that carries out their
// writes ([Course]).
//
// Some controllers take several turns of ours for one sync of upstream's, because each of our steps needs the
// effect of the one before in its view. For these the end is compared instead of one sync: both run until they
// want nothing more.
package settle
