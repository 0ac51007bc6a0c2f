"""Where two geoms touch, a function for each pair of kinds: closed forms, no iteration.

Every function takes two `Placed` geoms, the first of the kind that its name says first, and returns
`Points`: a fixed number of contact slots. What a slot holds is finite, with finite derivatives, in
every pose, whether there is a contact in it or not. Which feature of a geom touches (a face, an
edge, an end) is a choice among constants: its derivative is that of the feature chosen.

Sources: MuJoCo's `engine_collision_primitive.c` and `engine_collision_box.c`, with which contacts
agree to rounding where a pose is not within rounding of two choices, and where not said otherwise.
"""
