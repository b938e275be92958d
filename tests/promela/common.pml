/* What the models share: the names of the invariants, and a little about bits.
 *
 * HOLDS(7, c) is invariant I7 of docs/architecture.md; its number is what pan prints when it is broken: "(7==0)".
 */
#define HOLDS(number, c) assert((c) || (number == 0))
#define BOUND(c) HOLDS(99, c) /* not a promise of sluice: an array of the model is too short */

#define BIT(i) (1 << (i))
#define HAS(mask, i) (((mask) >> (i)) & 1)
